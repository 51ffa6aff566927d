"""Several caches that read what follows in one forward call."""
from __future__ import annotations

from typing import Sequence

import torch
import transformers

from .cache import Cache, Ids, _DenseLayer, _host, _refuse
from .running_model import ServedCache
from .slot_batch import SlotBatch


class CacheBatch(transformers.Cache, ServedCache):
    """Caches of one model that have read the same number of tokens, and read what follows together:

        caches = [prompt.cache(policy, 0.1) for policy in ("snapkv", "keydiff+adakv")]
        logits = kvsim.hf.CacheBatch(caches).feed([question, question])

    Each decides by itself what it holds, in each KV head of each layer. What they hold is in one buffer for all of them, padded to the
    longest. Numbers differ from those of a cache alone by rounding.
    """

    is_dense = False

    def __init__(self, caches: Sequence[Cache]):
        self._caches, self._rows = list(caches), range(len(caches))
        if len({id(cache._model) for cache in caches}) != 1 or len({(cache.length, cache._again) for cache in caches}) != 1 or \
                any(cache._slots is None for cache in caches):
            _refuse("are caches of one model that have read the same number of tokens", where="kvsim.hf.CacheBatch")
        self._running = caches[0]._running
        self._slots = [SlotBatch(list(of_layer)) for of_layer in zip(*(cache._slots for cache in caches))]
        super().__init__(layers=[_DenseLayer(self) for _ in self._slots])

    @property
    def length(self) -> int:
        return self._caches[self._rows[0]].length

    @property
    def about(self):
        return self._running.about

    def feed(self, ids: Sequence[Ids], rows: Sequence[int] | None = None) -> torch.Tensor:
        """Runs the model on as many tokens for each cache, ids [caches, tokens], or for some of them (rows): the last token's logits
        [caches, vocabulary]."""
        self._rows = range(len(self._caches)) if rows is None else list(rows)
        ids = [torch.as_tensor(of).reshape(-1) for of in ids]
        if len(ids) != len(self._rows) or len({len(of) for of in ids}) != 1:
            _refuse(f"reads as many tokens for each of {len(self._rows)} caches, not {[len(of) for of in ids]}", where="kvsim.hf.CacheBatch")
        return self._running.last_logits(torch.stack(ids), self)

    def before(self, ids, keywords):
        for index, row in zip(self._rows, ids.split(1)):
            self._caches[index].before(row, keywords)

    def after(self):
        for index in self._rows:
            self._caches[index].after()

    @torch.no_grad()
    def attend(self, layer, query, key, value, dense):
        caches = [self._caches[index] for index in self._rows]
        query, key, value = query.detach(), key.detach(), value.detach()
        if caches[0]._again:
            return torch.cat([cache.attend(layer, *rows, None)[0]
                              for cache, *rows in zip(caches, query.split(1), key.split(1), value.split(1))]), None
        for cache, last in zip(caches, query[:, :, -1]):
            cache.reached(layer, last)
        self._slots[layer].make_room(key.shape[2])
        heads = key.shape[1]
        out = query.new_empty((len(caches), heads, query.shape[1] // heads, query.shape[2], value.shape[3]))
        grouped = query.unflatten(1, (heads, -1))
        deciding = [row for row, cache in enumerate(caches) if cache._decides.decodes(layer)]
        joining = [row for row, cache in enumerate(caches) if not cache._decides.decodes(layer)]
        if joining:
            out[joining] = self._join(layer, joining, grouped[joining], key[joining], value[joining])
        for index in range(query.shape[2] if deciding else 0):
            here = slice(index, index + 1)
            out[deciding, ..., here, :] = self._step(layer, deciding, index, grouped[deciding][..., here, :], key[deciding][:, :, here],
                                                     value[deciding][:, :, here])
        return out.flatten(1, 2).transpose(1, 2).contiguous(), None

    def _join(self, layer, rows, query, key, value):
        """Tokens that only join."""
        which, slots, position = [self._rows[row] for row in rows], self._slots[layer], self.length
        for index in which:
            self._caches[index].admit_all(layer)
        slots.write(which, [self._caches[index]._slots[layer].extend(key.shape[2]) for index in which], key, value, position)
        return slots.attend(which, query, position, self._running.rule_of(layer))[0]

    def _step(self, layer, rows, token, query, key, value):
        """One token each, of which decoders may let others leave."""
        which, slots, position = [self._rows[row] for row in rows], self._slots[layer], self.length + token
        taken = []
        on_host = (_host(key[:, :, 0]), _host(value[:, :, 0]), _host(query.flatten(1, 2)[:, :, 0]))
        for index, *arrived in zip(which, *on_host):
            cache = self._caches[index]
            taken.append(cache._slots[layer].take(*cache.admit(layer, token, *arrived)))
        slots.write(which, taken, key, value, position)
        out, weights = slots.attend(which, query, position, self._running.rule_of(layer))
        weights = weights.cpu() if any(self._caches[index]._decides.needs_weights for index in which) else weights
        for row, index in enumerate(which):
            cache = self._caches[index]
            cache.attended(layer, token, [of[..., :count] for of, count in zip(weights[row], cache._slots[layer].counts)])
        return out
