"""Runs of llama.cpp: `record` runs any GGUF file with the llama.cpp inside PyPI's llama-cpp-python and writes what its attention
saw as a kvsim trace. README.md shows how. Needs llama-cpp-python, h5py and xxhash.
"""
from typing import TYPE_CHECKING

from .._homes import attributes_at

if TYPE_CHECKING:
    from ..writing.trace_error import TraceError
    from .recording import record

__getattr__ = attributes_at(__name__, {"record": ".recording", "TraceError": "..writing.trace_error"})
