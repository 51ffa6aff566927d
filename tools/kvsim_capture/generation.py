"""A prompt in chunks, then one token after the other: the loop of tools/capture_hf.py. Unlike generate() it bounds the
memory of the prompt's pass, and runs the last token too, so that every token has its key, value and query."""
import copy
import inspect
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from .trace_file import TraceError


@dataclass
class Sampling:
    """How a token is chosen; temperature 0: the likeliest, the lowest id among equals."""
    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int = 0

    def __str__(self):
        if self.temperature == 0:
            return "greedy"
        parts = [f"temperature {self.temperature:g}"]
        parts += [f"top-k {self.top_k}"] if self.top_k else []
        parts += [f"top-p {self.top_p:g}"] if self.top_p < 1 else []
        return ", ".join(parts)

    def choose(self, logits, generator):
        """`logits`: [vocabulary]."""
        logits = logits.float()
        if not bool(torch.isfinite(logits).any()) or bool(torch.isnan(logits).any()):
            raise TraceError("the logits are not finite", "model", "The checkpoint holds NaN, or overflows in this type.")
        if self.temperature == 0:
            return int(logits.argmax())
        probabilities, order = (logits / self.temperature).softmax(-1).sort(descending=True, stable=True)
        kept = torch.ones_like(probabilities, dtype=torch.bool)
        if self.top_k:
            kept[self.top_k:] = False
        kept &= probabilities.cumsum(-1) - probabilities < self.top_p  # up to and including the one that reaches it
        draw = torch.multinomial(probabilities * kept, 1, generator=generator)
        return int(order[draw])


class Generator:
    """Runs `model` on prompts; `on_tokens(n)` is told of every call."""

    def __init__(self, model, sampling, prefill_chunk, end_ids, on_tokens=lambda n: None):
        self._model, self._sampling, self._chunk = model, sampling, prefill_chunk
        self._end_ids, self._on_tokens = set(end_ids), on_tokens
        self._device = next(model.parameters()).device
        names = inspect.signature(type(model).forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in names else {}

    def prefill(self, ids, cache=None):
        """Runs `ids` after what `cache` holds: (cache, logits of the last)."""
        cache = DynamicCache(config=self._model.config) if cache is None else cache
        for first in range(0, len(ids), self._chunk):
            logits = self._forward(ids[first:first + self._chunk], cache)
        return cache, logits

    def decode(self, cache, logits, max_new_tokens):
        """Returns the new ids; all of them have run."""
        generator = torch.Generator(self._device).manual_seed(self._sampling.seed)
        chosen = []
        while len(chosen) < max_new_tokens:
            chosen.append(self._sampling.choose(logits, generator))
            logits = self._forward(chosen[-1:], cache)
            if chosen[-1] in self._end_ids:
                break
        return chosen

    @staticmethod
    def copy_of(cache):
        """For another continuation of the same tokens."""
        return copy.deepcopy(cache)

    @torch.inference_mode()
    def _forward(self, ids, cache):
        tensor = torch.tensor([ids], device=self._device)
        logits = self._model(input_ids=tensor, past_key_values=cache, use_cache=True, **self._last_only).logits[0, -1]
        self._on_tokens(len(ids))
        return logits
