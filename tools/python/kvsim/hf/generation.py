"""The generation loop of tools/python/capture_hf.py: a prompt in chunks, then one token at a time. Unlike generate() it
bounds the memory of the prompt's pass, and runs the last token too, so that every token has its key, value and
query."""
import copy
import inspect

import torch
from transformers import DynamicCache


class Generator:
    """Runs `model` on prompts; calls `on_tokens(n)` after every forward call of n tokens."""

    def __init__(self, model, sampling, prefill_chunk, end_ids, on_tokens=lambda n: None):
        self._model, self._sampling, self._chunk = model, sampling, prefill_chunk
        self._end_ids, self._on_tokens = set(end_ids), on_tokens
        self._device = next(model.parameters()).device
        names = inspect.signature(type(model).forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in names else {}

    def prefill(self, ids, cache=None):
        """Runs `ids` after the tokens in `cache`; returns (cache, logits of the last token)."""
        cache = DynamicCache(config=self._model.config) if cache is None else cache
        for first in range(0, len(ids), self._chunk):
            logits = self._forward(ids[first:first + self._chunk], cache)
        return cache, logits

    def decode(self, cache, logits, max_new_tokens):
        """Chooses and runs tokens; returns them."""
        chosen = []
        while len(chosen) < max_new_tokens:
            chosen.append(self._sampling.choose(logits.float().cpu().numpy(), len(chosen)))
            logits = self._forward(chosen[-1:], cache)
            if chosen[-1] in self._end_ids:
                break
        return chosen

    def answer(self, cache, ids):
        """Runs the given tokens one by one, as if they were chosen here."""
        for token_id in ids:
            self._forward([token_id], cache)
        return ids

    @staticmethod
    def copy_of(cache):
        """A copy of a cache, for another continuation of the same tokens."""
        return copy.deepcopy(cache)

    @torch.inference_mode()
    def _forward(self, ids, cache):
        tensor = torch.tensor([ids], device=self._device)
        logits = self._model(input_ids=tensor, past_key_values=cache, use_cache=True, **self._last_only).logits[0, -1]
        self._on_tokens(len(ids))
        return logits
