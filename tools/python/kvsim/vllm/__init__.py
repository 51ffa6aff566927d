"""Runs of vLLM: `record` writes what attention saw of each request as a kvsim trace, and the requests as a log that `kvsim requests`
reads. README.md shows how, also for `vllm serve`. Needs vllm, h5py and xxhash.
"""
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..writing.trace_error import TraceError
    from .recording_llm import record

_HOMES = {"record": ".recording_llm", "TraceError": "..writing.trace_error"}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
