"""Runs of llama.cpp: `record` runs any GGUF file with the llama.cpp inside PyPI's llama-cpp-python and writes what its attention
saw as a kvsim trace. README.md shows how. Needs llama-cpp-python, h5py and xxhash.
"""
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..writing.trace_error import TraceError
    from .recording import record

_HOMES = {"record": ".recording", "TraceError": "..writing.trace_error"}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
