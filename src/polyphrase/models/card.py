"""The model card that stands beside saved weights."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig


BASELINES = {
    "variation-attention": "Variation Attention (Deng et al. 2018): latent alignments",
    "multi-selectors": "Multi-Selectors (Cho et al. 2019): experts that choose what to say",
    "t-cvae": "T-CVAE (Wang and Wan 2019): a Transformer with one latent per output",
    "copy-source": "a system that says its source again",
}
"""What the systems are that are no encoder-decoder with a latent between its halves."""


def model_card(config: PretrainedConfig) -> str:
    """A README in the hub's format: what the model is, how to use it, how it was made."""
    base = getattr(config, "base", None)
    latent = getattr(config, "latent", None)
    header = ["---", "library_name: polyphrase", "pipeline_tag: text2text-generation"]
    if base and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", base):  # the hub refuses paths
        header.append(f"base_model: {base}")
    header += ["tags:", "- paraphrase-generation", "- diverse-generation", "---"]
    if config.model_type in BASELINES:
        what = BASELINES[config.model_type]
    elif latent is None:
        what = "a deterministic encoder-decoder (no latent)"
    else:
        prior = {"gp": "Gaussian-process", "vamp": "VampPrior"}.get(
            latent["prior"], latent["prior"]
        )
        what = f"an encoder-decoder with a {prior} prior and a {latent['posterior']} posterior"
    lines = [
        *header,
        "",
        "# A polyphrase model",
        "",
        f"This is {what}, written by polyphrase {config.polyphrase_version}.",
        "It rewrites a sentence in many different ways.",
        "",
        "```python",
        "import polyphrase",
        "",
        'rewriter = polyphrase.load("path/or/name")',
        'rewriter.generate(["How do I learn to cook well?"], n=10, seed=0)',
        "```",
        "",
        "The method is that of Du et al. (2022), *Diverse Text Generation via Variational",
        "Encoder-Decoder Models with Gaussian Process Priors*.",
        "",
    ]
    if base:
        lines += [
            f"Only the latent and low-rank adapters are stored here; the rest is `{base}`.",
            "",
        ]
    if latent is not None:
        lines += ["Latent settings:", "", "```json", json.dumps(latent, indent=2), "```", ""]
    return "\n".join(lines)
