"""The systems of the paper's tables, each by its name with its own settings.

A row's values are settings of a run where it differs from `TrainSettings`; a preset, a YAML file
and flags go before them. Optimisation is the paper's (appendix C) for its own systems, and each
publication's for the others.
"""

from __future__ import annotations

import difflib
from typing import Any

from ..errors import BadInput

_PG: dict[str, Any] = {
    "backbone": "pointer-generator",
    "batch_size": 64,
    "epochs": 200.0,
    "clip": 5.0,
    "bf16": False,
}
_PG_LATENT: dict[str, Any] = {"posterior": "diagonal", "injection": "replace", "size": 256}
_T_CVAE: dict[str, Any] = {
    "backbone": "t-cvae",
    "latent": None,
    "objective": {"annealing_steps": 20_000},
    "batch_size": 64,
    "betas": [0.9, 0.99],
    "clip": 5.0,
    "epochs": 200.0,
    "bf16": False,
    "spread": 1.0,
}

SYSTEMS: dict[str, dict[str, Any]] = {
    "copy": {"backbone": "copy-source", "latent": None},
    # The pointer-generator; without a latent it has a linear bottleneck of the latent's size, so
    # that the rows differ in the stochastic step alone.
    "pg": {**_PG, "latent": None, "network": {"bottleneck": 256}},
    "pg-normal": {
        **_PG,
        "latent": {**_PG_LATENT, "prior": "normal", "start_at_prior": False},
        "spread": 25.0,
    },
    "pg-gp": {**_PG, "latent": {**_PG_LATENT, "prior": "gp"}, "spread": 25.0},
    "pg-mixture": {**_PG, "latent": {**_PG_LATENT, "prior": "mixture"}, "spread": 25.0},
    "pg-vamp": {**_PG, "latent": {**_PG_LATENT, "prior": "vamp"}, "spread": 25.0},
    # Published baselines, trained from scratch.
    "variation-attention": {
        "backbone": "variation-attention",
        "latent": None,
        "learning_rate": 3e-4,
        "decay": 0.5,
        "batch_size": 6,
        "clip": 5.0,
        "bf16": False,
        "spread": 1.0,
    },
    "multi-selectors": {
        "backbone": "multi-selectors",
        "latent": None,
        "learning_rate": 1e-3,
        "batch_size": 16,
        "epochs": 20.0,
        "clip": 5.0,
        "bf16": False,
        "spread": 1.0,
    },
    "t-cvae": {**_T_CVAE, "vocabulary": {"lowercase": True}},
    "t-cvae-cased": _T_CVAE,
    # A pretrained encoder-decoder: the library's own latent, and the others beside it.
    "t5": {"latent": None},
    "t5-normal": {"latent": {"prior": "normal", "posterior": "diagonal"}, "spread": 7.0},
    "t5-gp": {},
    "t5-mixture": {"latent": {"prior": "mixture", "posterior": "diagonal"}, "spread": 7.0},
    "t5-vamp": {"latent": {"prior": "vamp", "posterior": "diagonal"}, "spread": 7.0},
    # The same deterministic model as `t5`, with what most people do for variety.
    "t5-beam": {"latent": None, "search": {"method": "beam"}},
    "t5-diverse-beam": {"latent": None, "search": {"method": "diverse-beam", "groups": 10}},
    "t5-top-k": {"latent": None, "search": {"method": "sample", "top_k": 40}},
    "t5-nucleus": {"latent": None, "search": {"method": "sample", "top_p": 0.9}},
    "t5-temperature": {"latent": None, "search": {"method": "sample", "temperature": 0.7}},
}


def row(name: str) -> dict[str, Any]:
    """The settings of a system, its name among them."""
    if name not in SYSTEMS:
        near = difflib.get_close_matches(name, SYSTEMS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(SYSTEMS)}"
        raise BadInput(f"system {name!r} is unknown; {hint}")
    return {"system": name, **SYSTEMS[name]}
