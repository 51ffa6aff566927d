"""Records the queries, keys and values of a Hugging Face model as a kvsim trace. README.md shows how.

`trace` needs torch and transformers; kvsim.writing, which it writes with, needs neither.
"""
import importlib

_HOMES = {"trace": ".session", "TraceError": "..writing.trace_error", "SelectionError": "..writing.token_selection"}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
