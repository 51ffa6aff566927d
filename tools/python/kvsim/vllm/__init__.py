"""Runs of vLLM: `record` writes what attention saw of each request as a kvsim trace, and the requests as a log that `kvsim requests`
reads. README.md shows how, also for `vllm serve`. Needs vllm, h5py and xxhash.
"""
from typing import TYPE_CHECKING

from .._homes import attributes_at

if TYPE_CHECKING:
    from ..writing.trace_error import TraceError
    from .recording_llm import record

__getattr__ = attributes_at(__name__, {"record": ".recording_llm", "TraceError": "..writing.trace_error"})
