"""evaluate(): what a model of transformers answers when its cache is a policy's."""
from __future__ import annotations

import pathlib
import tempfile
import types
import warnings
from typing import Any, Iterable, Mapping

import numpy as np
import torch

from .. import _core
from .._commands import Budget, Path, Policy, _asked, _budget, _items, _list, _run
from .._progress import Progress, shown
from .._table import Note, Table
from ..writing.trace_header import FLAGS
from .cache import Cache, Prompt
from .running_model import running_model
from .token_text import TokenText


def evaluate(model, tokenizer, workload: Path | Iterable[Mapping[str, Any]], policies: Policy | Iterable[Policy],
             budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int] = "prompt", mode: str = "both",
             per: str = "answer", force: str = "answer", max_new_tokens: int = 8, seed: int = 0, chunk: int | None = None,
             threads: int = 0, progress: Progress = None) -> Table:
    """The rows of `kvsim evaluate`, of a model of transformers that runs here, on the processor or a GPU.

    tokenizer: of transformers. workload, policies, budgets, cut: as of kvsim.evaluate. mode: "teacher" (every cache is fed the
    same tokens), "greedy" (its own) or "both". per: rows per "answer", "token" or "layer". force: what teacher mode feeds, the
    expected "answer" where there is one, or what the "full" cache generates. chunk: prompt tokens per forward call; None: all.

    Every prompt is read once, with full attention, for all policies and budgets; the full cache, which they are compared with,
    answers through the same code. Questions about one context are separate requests. A cell that cannot run has a reason in the
    column `skipped`. Raises UsageError, InputError, PolicyError, and TraceError for models that kvsim.hf.trace refuses.
    """
    texts, written = _asked(policies)
    cells = _core.Cells(texts, [_budget(budget) for budget in _list(budgets)], written)
    if force not in ("answer", "full"):
        _core.refuse(f"unknown choice {force!r}", "force", "It is answer or full.")
    answers = _core.Answers(cells, mode, per, seed)
    asked = _Asked(model, tokenizer, cells, answers, force == "answer", max_new_tokens, seed, chunk, threads)
    items, follow = _read(workload), shown(progress)
    try:
        for done, item in enumerate(items):
            for where in _list(cut):
                _Item(asked, item).answer(where)
            if follow is not None:
                follow("evaluate", (done + 1) / len(items))
    finally:
        if hasattr(follow, "close"):
            follow.close()
    notes = list(cells.notes) + answers.notes()
    for note in notes:
        warnings.warn(note, Note, stacklevel=2)
    settings = {"model": asked.name, "force": force, "max_new_tokens": max_new_tokens, "seed": seed}
    return Table(types.SimpleNamespace(take_records=answers.take_records, analysis="evaluate", traces=[], settings=settings,
                                       notes=notes))


def _read(workload):
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        path = _items(workload, folder)
        return _core.parse_workload(pathlib.Path(path).read_text(encoding="utf-8"), path)


def _end_ids(model):
    """The tokens that end an answer."""
    for config in (getattr(model, "generation_config", None), model.config.get_text_config()):
        found = getattr(config, "eos_token_id", None)
        if found is not None:
            return set(_list(found))
    return set()


class _Asked:
    """What all items share."""

    def __init__(self, model, tokenizer, cells, answers, force_answer, max_new_tokens, seed, chunk, threads):
        self.model, self.tokenizer, self.cells, self.answers = model, tokenizer, cells, answers
        self.force_answer, self.max_new_tokens, self.chunk = force_answer, max_new_tokens, chunk
        self.options = {"seed": seed, "threads": threads, "max_tokens": None}
        self.running = running_model(model)
        self.text = TokenText(tokenizer)
        self.end_ids = _end_ids(model)
        about = self.running.about
        self.name, self.lanes = about.name, about.n_layers * about.n_kv_heads
        self.token_bytes = (about.head_dim + about.v_head_dim) * self.running.dtype.itemsize

    def ids(self, text, framed=True):
        return self.tokenizer(text, add_special_tokens=framed)["input_ids"]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


class _Item:
    """One prompt: its tokens, their parts, and the expected answer."""

    def __init__(self, asked, item):
        self._asked, self._item = asked, item
        self._ids = asked.ids(item.prompt, item.framed)
        self._parts = item.part_flags([(asked.text.bytes(token), asked.text.is_special(token)) for token in self._ids]) \
            if item.has_parts else [0] * len(self._ids)
        self._evidence = np.flatnonzero(np.array(self._parts) & FLAGS["evidence"])
        self._answer = self._expected() if asked.force_answer and item.answers else []
        room = len(self._ids) + max(asked.max_new_tokens, len(self._answer))
        if room > asked.running.context:
            _core.refuse(f"takes {room} tokens with its answer; the model's context is {asked.running.context}", item.id, "")

    def _expected(self):
        answer = self._item.answers[0]
        both = self._asked.ids(self._item.prompt + answer, self._item.framed)
        if both[:len(self._ids)] != self._ids or len(both) == len(self._ids):
            _core.refuse(f"{answer!r} does not follow as tokens of its own", self._item.id, "Begin it with a space.")
        return both[len(self._ids):]

    def _tokens_before(self, cut):
        """How many tokens of the text are the prompt, for policies."""
        if cut == "prompt":
            return len(self._ids)
        context = np.flatnonzero(np.array(self._parts) & FLAGS["context"])
        if cut == "question" and not len(context):
            _core.refuse("does not say which tokens are its context", self._item.id, "Cut at the prompt, or after so many tokens.")
        try:
            tokens = int(context[-1]) + 1 if cut == "question" else int(cut)
        except ValueError:
            _core.refuse(f"unknown cut {cut!r}", self._item.id, "It is prompt, question or a number of tokens.")
        if not 1 <= tokens < len(self._ids):
            _core.refuse(f"has {len(self._ids)} tokens, and nothing follows the cut after {tokens}", self._item.id, "")
        return tokens

    def answer(self, cut):
        """Answers through every cache, and adds the rows."""
        asked = self._asked
        before = self._tokens_before(cut)
        prompt = Prompt(asked.model, self._ids[:before], chunk=asked.chunk, tokenizer=asked.text)
        question = self._ids[before:]
        answered = _core.AnsweredItem(before, len(question) or 1, str(cut))
        references = {}
        for mode in asked.answers.modes:
            references[mode] = _Run(self, prompt.cache("full", 1.0), question, mode, None)
            answered.add_reference(references[mode].stream)
        for index in range(len(asked.cells)):
            self._add_cell(answered, index, prompt, question, references)
        asked.answers.add(self._item, answered, asked.name, asked.decode, asked.lanes, asked.token_bytes)

    def _add_cell(self, answered, index, prompt, question, references):
        asked = self._asked
        streams, kept, cache = [], 0, None
        try:
            for mode in asked.answers.modes:
                cache = self._cache(index, prompt, cache)
                kept = cache.held_tokens / asked.lanes
                streams.append(_Run(self, cache, question, mode, references[mode]).stream)
        except _core.PolicyError:
            raise
        except _core.UsageError as error:
            return answered.add_cell(str(error), False, 0, 0, [])
        answered.add_cell("", cache.streams, cache.budget_tokens, kept, streams)

    def _cache(self, index, prompt, used):
        """A cell's cache at the end of the prompt."""
        if used is not None and not used.streams:
            used.rewind()
            return used
        cache = Cache.of_cell(self._asked.model, self._asked.cells, index, tokenizer=self._asked.text, **self._asked.options)
        cache.begin_with(prompt)
        return cache


class _Run:
    """One cache in one mode: what is fed, what it answers, and how far that is from the full cache's."""

    def __init__(self, item, cache, question, mode, reference):
        asked = item._asked
        self._asked, self._cache, self._reference = asked, cache, reference
        self.stream = _core.Stream()
        self.logits, self.states, self._states = [], [], None
        forced = item._answer if mode == "teacher" else []
        most = len(forced) or asked.max_new_tokens
        compared = mode == "teacher" and reference is not None
        with _StatesOf(asked.running, cache) as self._states:
            if not question:
                cache.ask_again()
            self._feed(question or item._ids[-1:])
            while True:
                logits, k = self.logits[-1], len(self.stream.tokens)
                token = forced[k] if forced else _core.choose_greedily(logits)
                if reference is None:
                    self.stream.margin(logits)
                if compared:
                    token = reference.stream.tokens[k]
                    self.stream.measure(reference.logits[k], logits, token)
                    self.stream.drift(*(part for pair in zip(reference.states[k], self.states[k]) for part in pair))
                self.stream.take(token)
                if k + 1 == most or (not forced and token in asked.end_ids):
                    break
                self._feed([token])
        self._end(item._evidence)
        if reference is not None:
            self.logits, self.states = [], []

    def _feed(self, ids):
        logits = self._cache.feed(ids)
        self.logits.append(logits.float().cpu().contiguous())
        self.states.append(self._states.latest())
        for resident in self._cache.resident:
            self.stream.fed(resident)

    def _end(self, evidence):
        about, lanes = self._asked.running.about, self._asked.lanes
        held = nowhere = None
        if len(evidence):
            lanes_with = sum(np.isin(evidence, positions).astype(int)
                             for layer in range(about.n_layers) for positions in self._cache.kept(layer))
            held, nowhere = float((lanes_with / lanes).mean()), float((lanes_with == 0).mean())
        self.stream.end(self._cache.held_tokens / lanes, held, nowhere)


class _StatesOf:
    """The latest token's queries and residual stream in every layer of a running cache."""

    def __init__(self, running, cache):
        self._running, self._cache = running, cache
        self._residual = [None] * len(cache.layers)

    def __enter__(self):
        self._cache.queries_seen = [None] * len(self._residual)
        self._hooks = [layer.register_forward_hook(self._keep(index)) for index, layer in enumerate(self._running.decoder.layers)]
        return self

    def __exit__(self, *error):
        self._cache.queries_seen = None
        for hook in self._hooks:
            hook.remove()

    def _keep(self, index):
        def hook(module, arguments, output):
            self._residual[index] = (output[0] if isinstance(output, tuple) else output)[0, -1].detach()
        return hook

    def latest(self):
        """(queries of every layer [query heads, head_dim], residual stream after every layer [hidden]), on the processor."""
        return tuple([rows.float().cpu().contiguous() for rows in of] for of in (self._cache.queries_seen, self._residual))
