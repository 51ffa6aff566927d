"""Records the queries, keys and values of a Hugging Face model as a kvsim trace. README.md shows how.

`trace` needs torch and transformers; `kvsim_capture.trace_file` alone needs neither.
"""
import importlib

_HOMES = {"trace": "session", "TraceError": "trace_error", "SelectionError": "token_selection"}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
