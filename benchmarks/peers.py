"""Other ways to search over the same memory, which ours is measured against."""

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters.transformers import T5Loader
from ctranslate2.specs.model_spec import OPTIONAL
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from polyphrase.backbones.memory import Memory
from polyphrase.decoding.settings import Search


def transformers_generate(network: Any, memory: Memory, search: Search) -> Tensor:
    """`generate` over all rows at once, all hypotheses returned: `[R, n, T]`, padded with 0."""
    found = network.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=memory.states),
        attention_mask=memory.mask.long(),
        num_beams=search.width,
        num_return_sequences=search.width,
        do_sample=False,
        max_new_tokens=search.max_length,
        min_new_tokens=search.min_length,
        length_penalty=search.length_penalty,
        early_stopping=False,
    )[:, 1:]
    padded = torch.zeros(len(found), search.max_length, dtype=torch.long, device=found.device)
    padded[:, : found.shape[1]] = found
    return padded.view(len(memory), search.width, -1)


class CTranslate2:
    """CTranslate2's decoder over given memories.

    It takes words only, so the memories go in as an embedding table with one word for each position
    of each row, read by an encoder that hands them on.

    Args:
        network: the T5 whose decoder is converted.
        memories: what the decoder attends to, a batch each.
        kind: `float32` or `int8`.
        side_by_side: batches at a time; they share torch's number of threads.
    """

    def __init__(
        self, network: Any, memories: Sequence[Memory], kind: str, side_by_side: int
    ) -> None:
        config = network.config
        spec = T5Loader().get_model_spec(copy.deepcopy(network))  # quantised where it stands
        encoder = spec.encoder
        encoder.layer = encoder.layer[:1]  # with nothing added to the residual, and no last norm
        for part in (encoder.layer[0].self_attention.linear[-1], encoder.layer[0].ffn.linear_1):
            part.weight = np.zeros_like(part.weight)
        encoder.layer_norm = OPTIONAL
        states = [memory.states[memory.mask] for memory in memories]
        encoder.embeddings[0].weight = torch.cat(states).numpy()
        lengths = [length for memory in memories for length in memory.mask.sum(1).tolist()]
        names = [f"m{place}" for place in range(sum(lengths))]
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary([f"w{word}" for word in range(config.vocab_size)])
        spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "w0", "w1", "w2"
        spec.config.decoder_start_token = "w0"
        spec.config.add_source_bos = spec.config.add_source_eos = False
        spec.validate()
        spec.optimize(quantization=kind)
        with tempfile.TemporaryDirectory() as folder:
            spec.save(str(Path(folder)))
            threads = torch.get_num_threads()
            self._translator = ctranslate2.Translator(
                folder,
                compute_type=kind,
                inter_threads=side_by_side,
                intra_threads=max(1, threads // side_by_side),
            )
            torch.set_num_threads(threads)
        words = iter(names)
        self._sources = [[next(words) for _ in range(length)] for length in lengths]

    def search(self, search: Search, rows: int) -> list[list[list[str]]]:
        """Beam search, some rows at a time; all hypotheses."""
        threads = torch.get_num_threads()
        results = self._translator.translate_batch(
            self._sources,
            beam_size=search.width,
            num_hypotheses=search.width,
            max_decoding_length=search.max_length,
            min_decoding_length=search.min_length,
            length_penalty=search.length_penalty,
            max_batch_size=rows,
        )
        torch.set_num_threads(threads)  # it sets its own for whoever calls it
        return [result.hypotheses for result in results]
