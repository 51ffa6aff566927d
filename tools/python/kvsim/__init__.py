"""kvsim: what KV cache policies lose, on recorded runs and in the running model.

    import kvsim
    run = kvsim.capture("DIR", "run.h5", prompt="The pass key is 7. What is it?", max_new_tokens=16)
    table = kvsim.replay(run, policies=["snapkv", "h2o*"], budgets=[0.1, 0.25])
    table.to_pandas()

Shapes, units and the meaning of every column: `table.units`, `table.descriptions`, and analysis/results/METRICS.md.
"""
import importlib
import importlib.metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from ._commands import Study, analyze, capture, command, cost, decisions, evaluate, generate, plot, replay, study, view, workload
    from ._core import BugError, Different, Error, InputError, PolicyError, ShortageError, UsageError
    from ._figure import Figure, View
    from ._policies import Allocation, Composition, Representation, ScorePolicy, close_up
    from ._sample import sample_model
    from ._table import Decisions, Note, Table
    from ._trace import Trace

# Loaded when they are first used: kvsim.hf, .importers, .llama_cpp, .vllm and .writing need nothing that is compiled.
_HOMES = {
    "_commands": ("Study", "analyze", "capture", "command", "cost", "decisions", "evaluate", "generate", "plot", "replay", "study",
                  "view", "workload"),
    "_core": ("BugError", "Different", "Error", "InputError", "PolicyError", "ShortageError", "UsageError"),
    "_figure": ("Figure", "View"),
    "_policies": ("Allocation", "Composition", "Representation", "ScorePolicy", "close_up"),
    "_sample": ("sample_model",),
    "_table": ("Decisions", "Note", "Table"),
    "_trace": ("Trace",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str):
    if name in ("hf", "importers", "llama_cpp", "lm_eval", "vllm", "writing"):
        return importlib.import_module(f".{name}", __name__)
    if name == "__version__":
        return importlib.metadata.version("kvsim")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}._core":
            raise
        raise ImportError(f"{__name__}.{name} needs the compiled half of the package, which is not here: pip install .") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
