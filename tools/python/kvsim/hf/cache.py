"""A transformers cache that holds what a policy of kvsim keeps, and the prompt that it begins with."""
from __future__ import annotations

import weakref
from typing import Any, Sequence

import numpy as np
import torch
import transformers
from transformers.cache_utils import DynamicLayer

from .. import _core
from .._commands import Budget, Policy, _asked, _budget
from .lane_slots import ROOM, LaneSlots
from .running_model import ServedCache, running_model
from .token_text import TokenText


Ids = Sequence[int] | torch.Tensor


class _DenseLayer(DynamicLayer):
    """One layer of a cache: grows as transformers' own until the cache takes over."""

    def __init__(self, cache):
        super().__init__()
        self._cache = weakref.proxy(cache)  # a cycle would hold the tensors until it is collected

    def update(self, key_states, value_states, *arguments, **keywords):
        if not self._cache.is_dense:
            return key_states, value_states
        return super().update(key_states.detach(), value_states.detach(), *arguments, **keywords)

    def get_seq_length(self, *arguments):
        return self._cache.length

    def drop(self):
        self.keys = self.values = None
        self.is_initialized = False

    def reset(self):
        _refuse("cannot be emptied", "Make another cache.")

    def crop(self, *arguments):
        _refuse("cannot be cut back: what was evicted is gone", "Cache.rewind() goes back to the end of a Prompt.")

    def _one_sequence(self, *arguments):
        _refuse("holds one sequence", "Beams and batches need a cache each.")

    reorder_cache = batch_repeat_interleave = batch_select_indices = _one_sequence


def _refuse(problem, hint="", where="kvsim.hf.Cache"):
    _core.refuse(problem, where, hint)


class _OneSequence(transformers.Cache, ServedCache):
    """What Prompt and Cache share: one sequence of tokens, of which `length` have been read."""

    is_dense = True

    def __init__(self, model, tokenizer):
        self._model = model
        self._running = running_model(model)
        self._text = tokenizer if tokenizer is None or isinstance(tokenizer, TokenText) else TokenText(tokenizer)
        self.length = 0
        self._expects = None  # layers of the present forward call that have not attended yet
        super().__init__(layers=[_DenseLayer(self) for _ in range(self._running.about.n_layers)])

    @property
    def about(self):
        return self._running.about

    def before(self, ids, keywords):
        if self._expects:
            _refuse("was left in the middle of a forward call that failed", "Make another cache.")
        if ids is None or ids.ndim != 2 or ids.shape[0] != 1:
            _refuse("holds one sequence: input_ids are [1, tokens]" + ("" if ids is None else f", not {list(ids.shape)}"),
                    "Run prompts one by one, each with a cache of its own.")
        mask = keywords.get("attention_mask")
        if mask is not None and (mask.ndim != 2 or not bool(mask.all())):
            _refuse("holds a sequence without padding, attended causally", "Leave attention_mask out.")
        expected = torch.arange(self.length, self.length + ids.shape[1])
        positions = keywords.get("position_ids")
        if positions is not None and not torch.equal(positions.reshape(-1).cpu(), expected):
            _refuse(f"has read {self.length} tokens, and is called for other positions than those that follow")
        self._ids = ids[0].tolist()
        self._expects = set(range(len(self.layers)))

    def attend(self, layer, query, key, value, dense):
        self._expects.discard(layer)
        with torch.no_grad():
            return self._attend(layer, query.detach(), key.detach(), value.detach(), dense)

    def after(self):
        if self._expects:
            _refuse(f"was not reached by the attention of layers {sorted(self._expects)}",
                    "This architecture does not call transformers' AttentionInterface there.")
        self.length += len(self._ids)

    def flags(self, ids):
        """What kinds of text tokens are, as bits; None without a tokenizer."""
        return None if self._text is None else [self._text.flags(token) for token in ids]

    def _run(self, ids, chunk):
        """Runs the model on ids, [tokens] or [1, tokens], after what was read; returns the last logits [vocabulary]."""
        ids = torch.as_tensor(ids).reshape(1, -1)
        for part in ids.split(chunk or ids.shape[1], 1):
            logits = self._running.last_logits(part, self)
        return logits[0]


class _Queries:
    """The queries of a prompt in every layer, from the first position on that someone needs."""

    def __init__(self, n_layers, first):
        self._first = first
        self._parts = [[] for _ in range(n_layers)]

    def take(self, layer, query, position):
        """query [query heads, tokens, head_dim], from a position on."""
        skipped = max(0, self._first - position)
        if skipped < query.shape[1]:
            self._parts[layer].append(query[:, skipped:])

    def of(self, layer):
        """[query heads, tokens, head_dim], after RoPE."""
        self._parts[layer] = [torch.cat(self._parts[layer], 1)]
        return self._parts[layer][0]


class Prompt(_OneSequence):
    """A prompt that has been read with full attention. Any number of caches begin with it:

        prompt = kvsim.hf.Prompt(model, ids)
        for policy in "snapkv", "keydiff+adakv":
            cache = prompt.cache(policy, 0.1)

    ids: token ids, [tokens] or [1, tokens]. chunk: tokens per forward call; None: all at once. tokenizer: says which tokens are
    special and which are punctuation, for policies that ask.

    It holds keys, values and queries of every layer, on the model's device; `logits` [vocabulary] are those of the last token.
    """

    def __init__(self, model: torch.nn.Module, ids: Ids, *, chunk: int | None = None, tokenizer: Any = None):
        super().__init__(model, tokenizer)
        self.ids = torch.as_tensor(ids).reshape(-1).tolist()
        self.queries = _Queries(len(self.layers), 0)
        self.logits = self._run(self.ids, chunk)
        self.recorded = _on_host(self.queries, self.layers)

    def before(self, ids, keywords):
        if self.length == len(self.ids):
            _refuse("is read already", "Caches begin with it: Prompt.cache(policy, budget).", "kvsim.hf.Prompt")
        super().before(ids, keywords)

    def _attend(self, layer, query, key, value, dense):
        self.queries.take(layer, query[0], self.length)
        return dense()

    def begin(self, caches: Sequence[Cache]) -> list[str]:
        """Lets unused caches begin with it; what several policies read of it is computed once. Returns of each why it cannot, or an
        empty text."""
        reasons = {}
        for cache in caches:
            try:
                cache._plan_on(self)
            except _core.PolicyError:
                raise
            except _core.UsageError as error:
                reasons[cache] = str(error)
        ranked = [cache for cache in caches if cache not in reasons and not cache.streams]
        reasons.update(zip(ranked, _rank(ranked, self.recorded)))
        for cache in ranked:
            if not reasons[cache]:
                cache._given = self
                cache._to_prompt_end()
        return [reasons.get(cache, "") for cache in caches]

    def cache(self, policy: Policy, budget: Budget, **options: Any) -> Cache:
        """A Cache that begins at the end of this prompt; options as of Cache."""
        return Cache(self._model, policy, budget, prompt=self, tokenizer=self._text, **options)


class Cache(_OneSequence):
    """A cache that holds what a policy keeps, for models of transformers:

        cache = kvsim.hf.Cache(model, "snapkv+xkv", "10%")
        model.generate(ids, past_key_values=cache, max_new_tokens=64)

    The first forward call is the prompt. It is read with full attention; when it ends, the policy ranks it, as kvsim evaluate
    does, every layer copies what each KV head keeps, and the rest is freed. What follows attends what is held. To evict before
    the question is known, read the context alone first:

        cache.prefill(context_ids)
        model.generate(context_and_question_ids, past_key_values=cache)

    policy: a text, or an object or a class of kvsim.ScorePolicy or Composition. budget: tokens per KV head (128), a share of
    the prompt (0.1, "10%") or bytes ("64MiB"). tokenizer: as of Prompt. max_tokens: the most that the text will have; default:
    the model's context. Results do not depend on `threads`.

    It holds one sequence, on the processor or a GPU. Keys keep the RoPE positions of the text. get_seq_length() counts the text.
    Raises UsageError for what a running model does not have (oracles, feedback=raw), for representations and selections, and
    TraceError for architectures that kvsim.hf.trace refuses.
    """

    def __init__(self, model: torch.nn.Module, policy: Policy, budget: Budget, *, prompt: Prompt | None = None, tokenizer: Any = None,
                 seed: int = 0, max_tokens: int | None = None, threads: int = 0):
        super().__init__(model, tokenizer)
        texts, written = _asked(policy)
        cells = _core.Cells(texts, [_budget(budget)], written)
        if len(cells) != 1:
            _refuse(f"has one policy and one budget; these are {len(cells)}")
        self._start((cells, 0, seed, max_tokens or self._running.context, threads))
        if prompt is not None:
            self.begin_with(prompt)

    @classmethod
    def of_cell(cls, model, cells, index, *, tokenizer, seed, max_tokens, threads):
        """The cache of one of several cells (_core.Cells)."""
        made = cls.__new__(cls)
        _OneSequence.__init__(made, model, tokenizer)
        made._start((cells, index, seed, max_tokens or made._running.context, threads))
        return made

    def _start(self, options):
        self._options = options
        self._given, self._queries, self._held, self._decides = None, None, None, None
        self._prompt_length, self._again, self._hold = None, False, False
        self.resident = []  # of each token of the latest forward call, how many all lanes held when it had joined
        self.queries_seen = None  # a list: the queries of its last token are kept there, per layer [query heads, head_dim]

    # The prompt.

    @property
    def policy(self) -> str:
        return self._options[0].policy(self._options[1])

    @property
    def budget_tokens(self) -> int | None:
        """What the budget comes to, per KV head; None before there is a prompt."""
        return None if self._decides is None else self._decides.budget_tokens

    def begin_with(self, prompt: Prompt) -> None:
        """Begins with a Prompt that has been read. A policy that takes the prompt token by token reads its tokens again."""
        if reason := prompt.begin([self])[0]:
            _core.refuse(reason, "", "")

    def _plan_on(self, prompt):
        self._require_unused()
        if prompt._model is not self._model:
            _refuse("and its prompt are of different models")
        self._plan(prompt.ids)
        if self.streams:
            self._decides = None
            self.prefill(prompt.ids)

    @property
    def streams(self) -> bool:
        """Whether the policy takes the prompt token by token instead of ranking it."""
        return self._decides is not None and self._decides.streams

    def feed(self, ids: Ids) -> torch.Tensor:
        """Runs the model on what follows: ids [tokens] or [1, tokens]; returns the last token's logits [vocabulary]."""
        return self._run(ids, None)

    def prefill(self, ids: Ids, chunk: int | None = None) -> torch.Tensor:
        """Reads the prompt and evicts: ids [tokens] or [1, tokens], `chunk` tokens per forward call, None: all at once. Returns
        the last token's logits [vocabulary]."""
        self._require_unused()
        ids = torch.as_tensor(ids).reshape(-1).tolist()
        self._hold = True
        self._begin_prompt(ids)
        logits = self._run(ids, chunk)
        self._hold = False
        self._end_prompt()
        return logits

    def _require_unused(self):
        if self._decides is not None:
            _refuse("has read a prompt already", "Make another cache.")

    def _plan(self, ids):
        cells, index, seed, length, threads = self._options
        self._decides = _core.CellCaches(cells, index, self._running.about, ids, self.flags(ids), self._running.elem, seed, length,
                                         threads)
        self._prompt_length = len(ids)

    def _begin_prompt(self, ids):
        self._plan(ids)
        if not self._decides.streams:
            self._queries = _Queries(len(self.layers), self._decides.first_query)
            return
        self._decides.begin_stream()
        about = self._running.about
        self._held = [self._empty_slots(about) for _ in self.layers]
        self.is_dense = False

    def _empty_slots(self, about):
        def none(dim):
            return torch.empty((about.n_kv_heads, 0, dim), dtype=self._running.dtype, device=self._running.device)

        return LaneSlots(none(about.head_dim), none(about.v_head_dim), [[]] * about.n_kv_heads, 0)

    def _end_prompt(self):
        if self._queries is not None:
            queries, self._queries = self._queries, None
            if reason := _rank([self], _on_host(queries, self.layers))[0]:
                _core.refuse(reason, "", "")
            self._to_prompt_end()
            self._fill(self.layers, drop=True)

    def _to_prompt_end(self):
        self._held, self.is_dense, self.length, self._again = None, False, self._prompt_length, False

    @property
    def _slots(self):
        """Keys and values that are held, per layer; None before the prompt has ended. A Prompt's are copied when they are first asked for."""
        if self._held is None and self._given is not None:
            self._fill(self._given.layers)
        return self._held

    @torch.no_grad()
    def _fill(self, layers, drop=False):
        """Copies what is kept of the prompt, layer by layer."""
        self._held = []
        for layer, dense in enumerate(layers):
            room = 0 if self._decides.decodes(layer) else ROOM
            self._held.append(LaneSlots(dense.keys[0], dense.values[0], self.kept(layer), room))
            if drop:
                dense.drop()

    def rewind(self) -> None:
        """Back to the end of the Prompt that the cache was made with, for another continuation."""
        if self._given is None:
            _refuse("was made without a Prompt, whose keys and values it would need", "Use Prompt.cache().")
        self._decides.rewind()
        self._to_prompt_end()

    def ask_again(self) -> None:
        """Lets the next forward call read the prompt's last token again, now through what is held: the text ends with it, and
        its first reading attended the whole prompt. kvsim evaluate does so where the question is known to the policy."""
        if self._slots is None or self.length != self._prompt_length:
            _refuse("can repeat the prompt's last token only right after the prompt")
        self.length -= 1
        self._again = True

    # What is held.

    def kept(self, layer: int) -> list[np.ndarray]:
        """The text positions that each KV head of a layer holds, in the order of its slots: a list of int32 arrays."""
        if self._decides is None:
            _refuse("has read no prompt yet")
        return [self._decides.slots(layer, head) for head in range(self._running.about.n_kv_heads)]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that are held, room for some tokens to come included."""
        if self._slots is None:
            return sum(tensor.untyped_storage().nbytes() for layer in self.layers if layer.is_initialized
                       for tensor in (layer.keys, layer.values))
        return sum(slots.nbytes for slots in self._slots)

    @property
    def held_tokens(self) -> int:
        """Tokens held in all KV heads of all layers together."""
        return sum(len(positions) for layer in range(len(self.layers)) for positions in self.kept(layer))

    # One forward call.

    def before(self, ids, keywords):
        super().before(ids, keywords)
        if self.length == 0 and self._decides is None:
            self._begin_prompt(self._ids)
        if self._again and len(self._ids) != 1:
            _refuse("repeats one token, the prompt's last, and is called with several")
        self._token_flags = self.flags(self._ids) or [0] * len(self._ids)
        self.resident = [0] * len(self._ids)

    def after(self):
        super().after()
        self._again = False
        if not self._hold:
            self._end_prompt()

    def reached(self, layer, query):
        """The forward call attends in a layer; query: [query heads, head_dim] of its last token."""
        self._expects.discard(layer)
        if self.queries_seen is not None:
            self.queries_seen[layer] = query

    def _attend(self, layer, query, key, value, dense):
        if self._queries is not None:
            self._queries.take(layer, query[0], self.length)
            return dense()
        query, key, value = query[0], key[0], value[0]
        self.reached(layer, query[:, -1])
        if self._again:
            out = self._repeat(layer, query, key, value)
        elif self._decides.decodes(layer):
            out = torch.cat([self._step(layer, i, query[:, i:i + 1], key[:, i], value[:, i]) for i in range(len(self._ids))], 1)
        else:
            out = self._append(layer, query, key, value)
        return out.transpose(0, 1)[None].contiguous(), None

    def _grouped(self, query):
        return query.reshape(self._running.about.n_kv_heads, -1, *query.shape[1:])

    def _step(self, layer, index, query, key, value):
        """One token, of which a decoder may let others leave: query [query heads, 1, head_dim]."""
        slots, position = self._slots[layer], self.length + index
        slots.join(position, key, value, *self.admit(layer, index, _host(key), _host(value), _host(query[:, 0])))
        out, weights = slots.attend(self._grouped(query), position, self._running.rule_of(layer))
        self.attended(layer, index, weights)
        return out.flatten(0, 1)

    def admit(self, layer, index, key, value, query):
        """A token of the forward call, on the processor: of each KV head the slot that it takes, and the slots that leave."""
        arrived = self._decides.admit(layer, self.length + index, key, value, query, self._token_flags[index])
        return ([slot for _, n_lanes, slot, _ in arrived for _ in range(n_lanes)],
                [leaving for _, n_lanes, _, leaving in arrived for _ in range(n_lanes)])

    def attended(self, layer, index, weights):
        """What the token then attended: of each KV head weights [group, 1, slots]."""
        seen = torch.cat([weight.reshape(-1) for weight in weights]).cpu() if self._decides.needs_weights else None
        self._decides.attended(layer, seen)
        self.resident[index] += self._slots[layer].total

    def _append(self, layer, query, key, value):
        """Tokens that only join."""
        self.admit_all(layer)
        slots = self._slots[layer]
        slots.append(self.length, key, value)
        return slots.attend(self._grouped(query), self.length, self._running.rule_of(layer))[0].flatten(0, 1)

    def admit_all(self, layer):
        """All tokens of the forward call, which let none leave."""
        slots = self._slots[layer]
        for index in range(len(self._ids)):
            self._decides.admit(layer, self.length + index, None, None, None, self._token_flags[index])
            self.resident[index] += slots.total + (index + 1) * len(slots.counts)

    def _repeat(self, layer, query, key, value):
        """The prompt's last token again: its key and value are the new ones, and where it was evicted it attends itself beside
        the slots."""
        slots, grouped = self._slots[layer], self._grouped(query)
        rule = self._running.rule_of(layer)
        if self._decides.decodes(layer):
            self._decides.ask_again(layer, self.length, _host(key[:, 0]), _host(value[:, 0]))
        missing = []
        for head, positions in enumerate(self.kept(layer)):
            slot = np.flatnonzero(positions == self.length)
            if len(slot):
                slots.replace(head, int(slot[0]), key[head, 0], value[head, 0])
            else:
                missing.append(head)
        self.resident[0] += slots.total
        out = slots.attend(grouped, self.length, rule)[0]
        for head in missing:
            out[head] = slots.attend_beside(head, grouped[head], key[head, 0], value[head, 0], self.length, rule)
        return out.flatten(0, 1)


def _rank(caches, recorded):
    """Ranks a prompt, of which _on_host() has been recorded, for all caches at once: of each why it cannot be, or an empty text."""
    decide = [cache._decides for cache in caches]
    if not decide:
        return []
    weights = caches[0]._running.output_weights() if any(each.needs_output_weights for each in decide) else []
    return _core.CellCaches.begin_together(decide, *recorded, weights)


def _host(rows):
    return rows.float().cpu().contiguous()


@torch.no_grad()
def _on_host(queries, layers):
    """A prompt's queries, keys and values of every layer, [heads, tokens, dim], as policies read them: float32 on the processor,
    where they lie if they are that already."""
    return ([_host(queries.of(layer)) for layer in range(len(layers))], [_host(layer.keys[0]) for layer in layers],
            [_host(layer.values[0]) for layer in layers])
