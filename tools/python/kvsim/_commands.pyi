# Written by tools/python/write_stubs.py from what `kvsim help` says of each command.
from __future__ import annotations
import json
import os
import pathlib
import tempfile
import warnings
from decimal import Decimal
from typing import Any, Literal, Iterable, Mapping, Sequence
import numpy as np
from . import _core, _policies
from ._figure import Figure, View
from ._policies import Composition, ScorePolicy, _Written
from ._progress import Progress, shown
from ._table import Decisions, Note, Table
from ._trace import Trace, _whole
Path = str | os.PathLike
Policy = str | ScorePolicy | type[ScorePolicy] | Composition
Budget = int | float | str
_Option = str | int | float | os.PathLike | Iterable[str | int | float | os.PathLike] | None

def _list(one_or_many: Any) -> list[Any]:
    ...

def _path(path: Path) -> str:
    ...

def _budget(budget: Budget) -> str:
    """128 tokens, 0.25 of the prompt, or as the command line writes it."""
    ...

def _words(options: Mapping[str, Any]) -> list[str]:
    ...

def _run(arguments: Sequence[str], policies: Sequence[Any]=(), progress: Progress=None) -> _core.Answer:
    ...

def _asked(policies: Policy | Iterable[Policy]) -> tuple[list[str], list[Any]]:
    ...

def _cells(policies: list[str], budgets: Budget | Iterable[Budget]) -> list[str]:
    ...

def command(*arguments: str) -> str:
    """Runs any command, `kvsim.command("policy", "show", "h2o")`, and returns what it prints."""
    ...

def replay(traces: Path | Iterable[Path], policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int]='prompt', per: str='all', seed: int=0, threads: int | None=None, progress: Progress=None, bounds: bool=..., decisions: Path | None=..., importance: _Option=..., machine: Path | None=..., memory_limit: _Option=..., model: Path | None=..., output: Path | None=..., overwrite: bool=..., peak: _Option=..., sequence: _Option=...) -> Table:
    """What every policy at every budget would have lost on recorded runs: a row per trace, policy, budget and cut, or per layer,
    head or step (`per`).

    budgets: tokens per lane (128), shares of the prompt (0.25 or "25%"), bytes ("64MiB").
    cut: where the prompt ends for policies: "prompt", "question" or a position; several for each.
    Results do not depend on `threads`. Raises UsageError, InputError, PolicyError.
    """
    ...

def decisions(trace: Path, policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *, bounds: bool=..., cut: _Option=..., decisions: Path | None=..., importance: _Option=..., machine: Path | None=..., memory_limit: _Option=..., model: Path | None=..., output: Path | None=..., overwrite: bool=..., peak: _Option=..., per: Literal['all', 'layer', 'head', 'step'] | None=..., seed: _Option=..., sequence: _Option=..., threads: _Option=...) -> Decisions:
    """Which positions each lane held, and when."""
    ...

def view(trace: Path, policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int]='prompt', output: Path | None=None, progress: Progress=None, answers: Path | None=..., model: Path | None=..., overwrite: bool=..., seed: _Option=..., sequence: _Option=..., threads: _Option=..., title: _Option=..., workload: Path | None=...) -> View:
    """The text of a run under each policy, words that no lane holds struck out, as a page that a notebook shows and `output` keeps."""
    ...

def evaluate(model: Path, workload: Path | Iterable[Mapping[str, Any]], policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int]='prompt', mode: str='both', seed: int=0, progress: Progress=None, answer: _Option=..., answered: _Option=..., chat: bool=..., decisions: Path | None=..., draft: Path | None=..., draft_cache: _Option=..., draft_documents: _Option=..., elem: Literal['auto', 'f32', 'bf16', 'f16'] | None=..., fields: _Option=..., force: Literal['answer', 'full'] | None=..., gamma: _Option=..., item: _Option=..., lead: _Option=..., least_full: _Option=..., losses: bool=..., max_new_tokens: _Option=..., memory_limit: _Option=..., output: Path | None=..., overwrite: bool=..., per: Literal['answer', 'token', 'layer', 'seam'] | None=..., positions: Literal['text', 'cache-step', 'cache-once'] | None=..., prefill: _Option=..., prefill_chunk: _Option=..., profile: _Option=..., prompt: Path | None=..., sequence: _Option=..., temperature: _Option=..., threads: _Option=..., trace: Path | None=..., turns: Literal['requests', 'golden', 'own'] | None=...) -> Table:
    """What the model answers when its cache is the policy's: a row per item, policy, budget and cut.

    model: a folder with config.json, safetensors and a tokenizer, or a GGUF file. workload: a file (JSON Lines, a JSON array, csv; Parquet
    through pyarrow), or its items as dicts.
    """
    ...

def _items(workload: Path | Iterable[Mapping[str, Any]], folder: str) -> str:
    ...

def workload(kind: str, *, chat: bool=..., context: _Option=..., count: _Option=..., examples: _Option=..., facts: _Option=..., hops: _Option=..., output: Path | None=..., overwrite: bool=..., seed: _Option=..., style: Literal['pairs', 'sentences', 'ruler'] | None=..., text: Path | None=..., tokenizer: Path | None=...) -> list[dict[str, Any]]:
    """Prompts with answers, `kvsim.workload("needle-multi-key", facts=8, context=1000, count=24)`, as dicts."""
    ...

def capture(model: Path, output: Path, *, prompt: str | None=None, prompt_file: Path | None=None, progress: Progress=None, answer_tokens: Path | None=..., attention: _Option=..., chat: bool=..., column_statistics: bool=..., compute: _Option=..., deflate: _Option=..., device: _Option=..., elem: _Option=..., engine: _Option=..., fields: _Option=..., ignore_eos: bool=..., item: _Option=..., max_new_tokens: _Option=..., output_weights: bool=..., overwrite: bool=..., pieces: bool=..., prefill_chunk: _Option=..., prompt_logprobs: bool=..., queries: _Option=..., second_pass: Path | None=..., second_pass_queries: bool=..., seed: _Option=..., temperature: _Option=..., threads: _Option=..., tokens: Path | None=..., top_k: _Option=..., top_p: _Option=..., workload: Path | None=...) -> Trace:
    """Runs a model on a prompt (a text, or prompt_file=, tokens=, workload= and item=) and records its keys, values and queries."""
    ...

def generate(output: Path, *, decode: _Option=..., drift: _Option=..., elem: _Option=..., group: _Option=..., head_dim: _Option=..., heavy: _Option=..., heavy_share: _Option=..., kv_heads: _Option=..., layers: _Option=..., local_span: _Option=..., locality: _Option=..., needle: _Option=..., needle_tokens: _Option=..., needles: _Option=..., noise: _Option=..., overwrite: bool=..., prompt_tokens: _Option=..., seed: _Option=..., sink: _Option=..., sinks: _Option=..., stretch: _Option=...) -> Trace:
    """Writes a seeded synthetic trace."""
    ...

def analyze(kind: str, traces: Path | Iterable[Path], *, progress: Progress=None, average: Literal['row', 'split'] | None=..., bins: _Option=..., bits: _Option=..., budget: _Option=..., dropped: _Option=..., early_rows: _Option=..., late_rows: _Option=..., local: _Option=..., mean: Literal['all_rows', 'visible'] | None=..., output: Path | None=..., overwrite: bool=..., per: Literal['all', 'layer', 'head'] | None=..., points: _Option=..., policies: _Option=..., pool: _Option=..., projections: _Option=..., r: _Option=..., rankings: _Option=..., rows: _Option=..., seed: _Option=..., sequence: _Option=..., shares: _Option=..., sinks: _Option=..., skip: _Option=..., slope: _Option=..., source: Literal['documents', 'before'] | None=..., split: _Option=..., threads: _Option=..., times: _Option=...) -> Table:
    """What recorded runs show without replaying a policy: `kvsim help analyze` lists the kinds."""
    ...

def cost(model: Path | None=None, machine: Path | None=None, policies: Policy | Iterable[Policy]=(), budgets: Budget | Iterable[Budget]=(), *, acceptance: _Option=..., attention: Literal['flash', 'eager'] | None=..., batch: _Option=..., buffer: _Option=..., cache_traffic: _Option=..., chunk: _Option=..., computed: _Option=..., cut: _Option=..., documents: _Option=..., draft: Path | None=..., draft_acceptance: _Option=..., draft_cache: _Option=..., draft_parallel: _Option=..., generate: _Option=..., head_pages: bool=..., hit_rate: _Option=..., holes: bool=..., host_floor: _Option=..., kv: Literal['fp16', 'bf16', 'fp32'] | None=..., offload: _Option=..., output: Path | None=..., overwrite: bool=..., padded: bool=..., page: _Option=..., plot: Path | None=..., preallocated: bool=..., predicted_by: Path | None=..., prefetch: _Option=..., prompt_tokens: _Option=..., row_share: _Option=..., rows: Literal['written', 'recomputed'] | None=..., sequence: _Option=..., stored_kv_heads: _Option=..., sweep: _Option=..., threads: _Option=..., tp: _Option=..., trace: Path | None=..., weight_bits: _Option=...) -> Table:
    """Bytes and seconds of policies that serve a model on a machine, as modelled: `kvsim help cost estimate`."""
    ...

def plot(figure: str, results: Table | Path, *, budget: _Option=..., cut: _Option=..., gap: bool=..., head: _Option=..., layer: _Option=..., metric: _Option=..., output: Path | None=..., overwrite: bool=..., policy: _Option=..., theme: Literal['light', 'dark'] | None=..., trace: _Option=..., width: _Option=..., workload: _Option=...) -> Figure:
    """A figure of results: a Table, a results file or a study's folder. `kvsim help plot` lists the figures. It needs gnuplot."""
    ...

class Study:
    """The folder of a study that has run."""

    def __init__(self, folder: Path):
        ...

    def table(self, name: str='results') -> Table:
        """One of its tables: "results", "answers", "winners", ... as `kvsim export FOLDER --table NAME`."""
        ...

    @property
    def report(self) -> pathlib.Path:
        ...

    def __repr__(self) -> str:
        ...

def study(config: Path | Mapping[str, Any], output: Path, *, resume: bool=False, overwrite: bool=False, threads: int | None=None, progress: Progress=None) -> Study:
    """Many traces, policies, budgets and seeds as one folder of results. config: a JSON file, or what it would say as a dict
    (`kvsim config reference`); paths in it are as seen from the file, or from the current folder. A dict without a name gets that
    of the output."""
    ...
