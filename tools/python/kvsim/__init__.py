"""kvsim: what KV cache policies lose, on recorded runs and in the running model.

    import kvsim
    run = kvsim.capture("DIR", "run.h5", prompt="The pass key is 7. What is it?", max_new_tokens=16)
    table = kvsim.replay(run, policies=["snapkv", "h2o*"], budgets=[0.1, 0.25])
    table.to_pandas()

Shapes, units and the meaning of every column: `table.units`, `table.descriptions`, and analysis/results/METRICS.md.
"""
from ._commands import analyze, capture, command, cost, decisions, evaluate, generate, plot, replay, study, workload
from ._core import BugError, Different, Error, InputError, PolicyError, UsageError
from ._figure import Figure
from ._policies import Allocation, Composition, ScorePolicy, close_up
from ._table import Note, Table
from ._trace import Trace

__all__ = [
    "Allocation", "BugError", "Composition", "Different", "Error", "Figure", "InputError", "Note", "PolicyError", "ScorePolicy", "Table", "Trace",
    "UsageError", "analyze", "capture", "close_up", "command", "cost", "decisions", "evaluate", "generate", "plot", "replay",
    "study", "workload",
]
