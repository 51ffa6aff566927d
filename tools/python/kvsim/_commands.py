"""The commands as functions. Each takes what `kvsim help COMMAND` lists: options that have no argument of their own here are
given by their names (`--top-k 5` is `top_k=5`), and misspelt ones are answered with the nearest."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
import warnings
from decimal import Decimal
from typing import Any, Iterable, Mapping, Sequence

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


def _list(one_or_many: Any) -> list[Any]:
    if isinstance(one_or_many, (str, bytes, os.PathLike, Trace, _Written, Composition, type, Mapping)):
        return [one_or_many]
    return list(one_or_many) if isinstance(one_or_many, Iterable) else [one_or_many]


def _path(path: Path) -> str:
    return os.fsdecode(os.fspath(path))


def _budget(budget: Budget) -> str:
    """128 tokens, 0.25 of the prompt, or as the command line writes it."""
    if isinstance(budget, (float, np.floating)):
        return f"{(Decimal(repr(float(budget))) * 100).normalize():f}%"
    return str(budget)


def _words(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        for item in _list(value):
            text = repr(float(item)) if isinstance(item, (float, np.floating)) else \
                _path(item) if isinstance(item, os.PathLike) else str(item)
            words.append(f"{option}={text}")
    return words


def _run(arguments: Sequence[str], policies: Sequence[Any] = (), progress: Progress = None) -> _core.Answer:
    for word in arguments:
        _whole(word)
    follow = shown(progress)
    try:
        answer = _core.run(list(arguments), list(policies), follow)
    finally:
        if hasattr(follow, "close"):
            follow.close()
    for note in answer.notes:
        warnings.warn(note, Note, stacklevel=3)
    return answer


def _asked(policies: Policy | Iterable[Policy]) -> tuple[list[str], list[Any]]:
    return _policies.named(_list(policies))


def _cells(policies: list[str], budgets: Budget | Iterable[Budget]) -> list[str]:
    listed = ",".join(_budget(budget) for budget in _list(budgets))
    return [f"--policy={policy}" for policy in policies] + ([f"--budget={listed}"] if listed else [])


def command(*arguments: str) -> str:
    """Runs any command, `kvsim.command("policy", "show", "h2o")`, and returns what it prints."""
    return _run(arguments, list(_policies.written.values()) if arguments[:1] == ("policy",) else ()).text


def replay(traces: Path | Iterable[Path], policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *,
           cut: str | int | Iterable[str | int] = "prompt", per: str = "all", seed: int = 0, threads: int | None = None,
           progress: Progress = None, **options: Any) -> Table:
    """What every policy at every budget would have lost on recorded runs: a row per trace, policy, budget and cut, or per layer,
    head or step (`per`).

    budgets: tokens per lane (128), shares of the prompt (0.25 or "25%"), bytes ("64MiB").
    cut: where the prompt ends for policies: "prompt", "question" or a position; several for each.
    Results do not depend on `threads`. Raises UsageError, InputError, PolicyError.
    """
    texts, classes = _asked(policies)
    arguments = ["replay", *map(_path, _list(traces)), *_cells(texts, budgets),
                 *_words({"cut": ",".join(map(str, _list(cut))), "per": per, "seed": seed, "threads": threads, "format": "csv",
                          "quiet": True, **options})]
    return Table(_run(arguments, classes, progress))


def decisions(trace: Path, policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget],
              **options: Any) -> Decisions:
    """Which positions each lane held, and when."""
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        file = os.path.join(folder, "decisions.h5")
        replay(trace, policies, budgets, decisions=file, **options)
        return Decisions(_core.read_decisions(file))


def view(trace: Path, policies: Policy | Iterable[Policy], budgets: Budget | Iterable[Budget], *,
         cut: str | int | Iterable[str | int] = "prompt", output: Path | None = None, progress: Progress = None, **options: Any) -> View:
    """The text of a run under each policy, words that no lane holds struck out, as a page that a notebook shows and `output` keeps."""
    texts, classes = _asked(policies)
    words = {"cut": ",".join(map(str, _list(cut))), "output": output or "-", "quiet": True, **options}
    page = _run(["view", _path(trace), *_cells(texts, budgets), *_words(words)], classes, progress).text
    return View(page if output is None else pathlib.Path(output).read_text(encoding="utf-8"))


def evaluate(model: Path, workload: Path | Iterable[Mapping[str, Any]], policies: Policy | Iterable[Policy],
             budgets: Budget | Iterable[Budget], *, cut: str | int | Iterable[str | int] = "prompt", mode: str = "both",
             seed: int = 0, progress: Progress = None, **options: Any) -> Table:
    """What the model answers when its cache is the policy's: a row per item, policy, budget and cut.

    model: a folder with config.json, safetensors and a tokenizer, or a GGUF file. workload: a file (JSON Lines, a JSON array, csv; Parquet
    through pyarrow), or its items as dicts.
    """
    texts, classes = _asked(policies)
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        arguments = ["evaluate", *_words({"model": model, "workload": _items(workload, folder)}), *_cells(texts, budgets),
                     *_words({"cut": ",".join(map(str, _list(cut))), "mode": mode, "seed": seed, "format": "csv", "quiet": True,
                              **options})]
        return Table(_run(arguments, classes, progress))


def _items(workload: Path | Iterable[Mapping[str, Any]], folder: str) -> str:
    if isinstance(workload, (str, os.PathLike)) and not os.fspath(workload).endswith(".parquet"):
        return _path(workload)
    if isinstance(workload, (str, os.PathLike)):
        from pyarrow import parquet
        workload = parquet.read_table(_path(workload)).to_pylist()
    file = pathlib.Path(folder, "workload.jsonl")
    file.write_text("".join(json.dumps(item) + "\n" for item in workload), encoding="utf-8")
    return str(file)


def workload(kind: str, **options: Any) -> list[dict[str, Any]]:
    """Prompts with answers, `kvsim.workload("needle-multi-key", facts=8, context=1000, count=24)`, as dicts."""
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        file = pathlib.Path(folder, "workload.jsonl")
        _run(["workload", kind, *_words({"output": str(file), **options})])
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def capture(model: Path, output: Path, *, prompt: str | None = None, prompt_file: Path | None = None,
            progress: Progress = None, **options: Any) -> Trace:
    """Runs a model on a prompt (a text, or prompt_file=, tokens=, workload= and item=) and records its keys, values and queries."""
    options["prompt"] = prompt_file
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        if prompt is not None:
            file = pathlib.Path(folder, "prompt.txt")
            file.write_text(prompt, encoding="utf-8")
            options["prompt"] = str(file)
        _run(["capture", *_words({"model": model, "output": output, "quiet": True, **options})], (), progress)
    return Trace(output)


def generate(output: Path, **options: Any) -> Trace:
    """Writes a seeded synthetic trace."""
    _run(["trace", "generate", *_words({"output": output, **options})])
    return Trace(output)


def analyze(kind: str, traces: Path | Iterable[Path], *, progress: Progress = None, **options: Any) -> Table:
    """What recorded runs show without replaying a policy: `kvsim help analyze` lists the kinds."""
    return Table(_run(["analyze", kind, *map(_path, _list(traces)), *_words({"format": "csv", "quiet": True, **options})], (),
                      progress))


def cost(model: Path | None = None, machine: Path | None = None, policies: Policy | Iterable[Policy] = (),
         budgets: Budget | Iterable[Budget] = (), **options: Any) -> Table:
    """Bytes and seconds of policies that serve a model on a machine, as modelled: `kvsim help cost estimate`."""
    texts, classes = _asked(policies)
    return Table(_run(["cost", "estimate", *_words({"model": model, "machine": machine}), *_cells(texts, budgets),
                       *_words({"format": "csv", **options})], classes))


def plot(figure: str, results: Table | Path, **options: Any) -> Figure:
    """A figure of results: a Table, a results file or a study's folder. `kvsim help plot` lists the figures. It needs gnuplot."""
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        if isinstance(results, Table):
            file = os.path.join(folder, "results.jsonl")
            pathlib.Path(file).write_text(results._records.jsonl(), encoding="utf-8")
            results = file
        return Figure(_run(["plot", figure, _path(results), *_words({"format": "svg", **options})]).text)


class Study:
    """The folder of a study that has run."""

    def __init__(self, folder: Path):
        self.folder = pathlib.Path(folder)

    def table(self, name: str = "results") -> Table:
        """One of its tables: "results", "answers", "winners", ... as `kvsim export FOLDER --table NAME`."""
        return Table(_run(["export", str(self.folder), "--format=csv", f"--table={name}"]))

    @property
    def report(self) -> pathlib.Path:
        return self.folder / "report.html"

    def __repr__(self) -> str:
        return f"<kvsim.Study {self.folder}>"


def study(config: Path | Mapping[str, Any], output: Path, *, resume: bool = False, overwrite: bool = False,
          threads: int | None = None, progress: Progress = None) -> Study:
    """Many traces, policies, budgets and seeds as one folder of results. config: a JSON file, or what it would say as a dict
    (`kvsim config reference`); paths in it are as seen from the file, or from the current folder. A dict without a name gets that
    of the output."""
    if isinstance(config, Mapping):
        # Beside the paths that it names.
        with tempfile.NamedTemporaryFile("w", dir=".", prefix=".kvsim-", suffix=".json", encoding="utf-8") as file:
            json.dump({"name": pathlib.Path(output).name, **config}, file, default=str)
            file.flush()
            return study(file.name, output, resume=resume, overwrite=overwrite, threads=threads, progress=progress)
    classes = _policies.named_in([pathlib.Path(config).read_text(encoding="utf-8")])
    options = {"output": output, "resume": resume, "overwrite": overwrite, "threads": threads, "quiet": True}
    _run(["study", _path(config), *_words(options)], classes, progress)
    return Study(output)
