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
from .cache_batch import CacheBatch
from .running_model import running_model
from .token_text import TokenText

RANKED = 64  # cells that are ranked together, so that each policy is at all of its budgets; no keys or values are copied for it

def evaluate(model, tokenizer, workload: Path | Iterable[Mapping[str, Any]], policies: Policy | Iterable[Policy],
             budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int] = "prompt", mode: str = "both",
             per: str = "answer", force: str = "answer", max_new_tokens: int = 8, seed: int = 0, chunk: int | None = None,
             threads: int = 0, batch: int = 16, progress: Progress = None) -> Table:
    """The rows of `kvsim evaluate`, of a model of transformers that runs here, on the processor or a GPU.

    tokenizer: of transformers. workload, policies, budgets, cut: as of kvsim.evaluate. mode: "teacher" (every cache is fed the
    same tokens), "greedy" (its own) or "both". per: rows per "answer", "token" or "layer". force: what teacher mode feeds, the
    expected "answer" where there is one, or what the "full" cache generates. chunk: prompt tokens per forward call; None: all.
    batch: how many caches that evicted read what follows in one forward call.

    Every prompt is read once, with full attention, for all policies and budgets; the full cache, which they are compared with,
    answers through the same code. In a batch, numbers differ from those of a cache alone by rounding; with batch=1 they do not. Questions
    about one context are separate requests. A cell that cannot run has a reason in the column `skipped`. Raises UsageError, InputError, PolicyError, and TraceError for models that kvsim.hf.trace refuses.
    """
    texts, written = _asked(policies)
    cells = _core.Cells(texts, [_budget(budget) for budget in _list(budgets)], written)
    if force not in ("answer", "full"):
        _core.refuse(f"unknown choice {force!r}", "force", "It is answer or full.")
    answers = _core.Answers(cells, mode, per, seed)
    if batch < 1:
        _core.refuse(f"holds {batch} caches", "batch", "It is at least 1.")
    asked = _Asked(model, tokenizer, cells, answers, force == "answer", max_new_tokens, seed, chunk, threads, batch)
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

    def __init__(self, model, tokenizer, cells, answers, force_answer, max_new_tokens, seed, chunk, threads, batch):
        self.model, self.tokenizer, self.cells, self.answers = model, tokenizer, cells, answers
        self.force_answer, self.max_new_tokens, self.chunk, self.batch = force_answer, max_new_tokens, chunk, batch
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
        references = {mode: self._runs([prompt.cache("full", 1.0)], question, mode, None)[0] for mode in asked.answers.modes}
        for reference in references.values():
            answered.add_reference(reference.stream)
        cells = {}
        for caches in self._groups(prompt, before, cells):
            cells.update(zip(caches, self._answered(caches, prompt, question, references)))
        for index in range(len(asked.cells)):
            answered.add_cell(*cells[index])
        asked.answers.add(self._item, answered, asked.name, asked.decode, asked.lanes, asked.token_bytes)

    def _groups(self, prompt, before, skipped):
        """Caches that answer together, {cell: cache}. What cannot run is added to `skipped`."""
        asked = self._asked
        for begin in range(0, len(asked.cells), RANKED):
            begun = {index: self._unused(index) for index in range(begin, min(begin + RANKED, len(asked.cells)))}
            for index, reason in zip(list(begun), prompt.begin(list(begun.values()))):
                if reason:
                    skipped[index] = reason, False, 0, 0, []
                    del begun[index]
            for index in [index for index, cache in begun.items() if cache.held_tokens == before * asked.lanes]:
                yield {index: begun.pop(index)}  # alone, so that what evicted nothing answers as the full cache does to the bit
            shortest_first = sorted(begun, key=lambda index: begun[index].held_tokens)  # a batch is padded to its longest
            for first in range(0, len(shortest_first), asked.batch):
                yield {index: begun.pop(index) for index in shortest_first[first:first + asked.batch]}

    def _answered(self, caches, prompt, question, references):
        """What caches answer together, of each what AnsweredItem.add_cell() takes."""
        streams = [[] for _ in caches]
        first = [(cache.streams, cache.budget_tokens, cache.held_tokens / self._asked.lanes) for cache in caches.values()]
        for number, (mode, reference) in enumerate(references.items()):
            if number:
                caches = {index: self._again(index, prompt, cache) for index, cache in caches.items()}
            for of, run in zip(streams, self._runs(list(caches.values()), question, mode, reference)):
                of.append(run.stream)
        return [("", *of, streams_) for of, streams_ in zip(first, streams)]

    def _unused(self, index):
        return Cache.of_cell(self._asked.model, self._asked.cells, index, tokenizer=self._asked.text, **self._asked.options)

    def _again(self, index, prompt, used):
        """A cell's cache at the end of the prompt once more."""
        if not used.streams:
            used.rewind()
            return used
        cache = self._unused(index)
        cache.begin_with(prompt)
        return cache

    def _runs(self, caches, question, mode, reference):
        """Lets caches at the end of the prompt answer together."""
        runs = [_Run(self, cache, question, mode, reference) for cache in caches]
        if not question:
            for cache in caches:
                cache.ask_again()
        feed = (lambda ids, rows: caches[0].feed(ids)[None]) if len(caches) == 1 else CacheBatch(caches).feed
        with _StatesOf(self._asked.running, caches) as states:
            while rows := [index for index, run in enumerate(runs) if run.following]:
                logits = feed([runs[index].following for index in rows], rows).float().cpu()
                for row, index in enumerate(rows):
                    runs[index].take(logits[row].contiguous(), states, row)
        for run in runs:
            run.end(self._evidence)
        return runs


class _Run:
    """One cache in one mode: what it is fed next (`following`, [] at the end), what it answers, and how far that is from the full cache's."""

    def __init__(self, item, cache, question, mode, reference):
        self._asked, self._cache, self._reference = item._asked, cache, reference
        self.stream = _core.Stream()
        self.logits, self.states = [], []  # of the reference, which others are compared with
        self._forced = item._answer if mode == "teacher" else []
        self._most = len(self._forced) or self._asked.max_new_tokens
        self._compared = mode == "teacher" and reference is not None
        self.following = question or item._ids[-1:]

    def take(self, logits, states, row):
        """What the model says after `following`: logits [vocabulary], and _StatesOf the forward call, of which this is a row."""
        for resident in self._cache.resident:
            self.stream.fed(resident)
        k = len(self.stream.tokens)
        token = self._forced[k] if self._forced else _core.choose_greedily(logits)
        if self._reference is None:
            self.stream.margin(logits)
            self.logits.append(logits)
            self.states.append(states.of(row, self._cache))
        if self._compared:
            token = self._reference.stream.tokens[k]
            self.stream.measure(self._reference.logits[k], logits, token)
            drifted = zip(self._reference.states[k], states.of(row, self._cache))
            self.stream.drift(*(part for pair in drifted for part in pair))
        self.stream.take(token)
        ended = k + 1 == self._most or (not self._forced and token in self._asked.end_ids)
        self.following = [] if ended else [token]

    def end(self, evidence):
        about, lanes = self._asked.running.about, self._asked.lanes
        held = nowhere = None
        if len(evidence):
            lanes_with = sum(np.isin(evidence, positions).astype(int)
                             for layer in range(about.n_layers) for positions in self._cache.kept(layer))
            held, nowhere = float((lanes_with / lanes).mean()), float((lanes_with == 0).mean())
        self.stream.end(self._cache.held_tokens / lanes, held, nowhere)


class _StatesOf:
    """The latest token's queries and residual stream in every layer of running caches."""

    def __init__(self, running, caches):
        self._running, self._caches = running, caches
        self._residual = [None] * running.about.n_layers

    def __enter__(self):
        for cache in self._caches:
            cache.queries_seen = [None] * len(self._residual)
        self._hooks = [layer.register_forward_hook(self._keep(index)) for index, layer in enumerate(self._running.decoder.layers)]
        return self

    def __exit__(self, *error):
        for cache in self._caches:
            cache.queries_seen = None
        for hook in self._hooks:
            hook.remove()

    def _keep(self, index):
        def hook(module, arguments, output):
            self._residual[index] = (output[0] if isinstance(output, tuple) else output)[:, -1].detach()
        return hook

    def of(self, row, cache):
        """(queries of every layer [query heads, head_dim], residual stream after every layer [hidden]) of a row of the batch, on the
        processor."""
        return tuple([rows.float().cpu().contiguous() for rows in of]
                     for of in (cache.queries_seen, [residual[row] for residual in self._residual]))
