"""Models of Hugging Face transformers: `trace` records their queries, keys and values as a kvsim trace, `Cache` lets kvsim's
policies decide what they hold while they run (`CacheBatch`: several in one forward call), and `evaluate` what they answer then. README.md shows how.

All need torch and transformers; `Cache`, `CacheBatch`, `Prompt` and `evaluate` also the compiled half of kvsim.
"""
from typing import TYPE_CHECKING

from .._homes import attributes_at

if TYPE_CHECKING:
    from ..writing.token_selection import SelectionError
    from ..writing.trace_error import TraceError
    from .cache import Cache, Prompt
    from .cache_batch import CacheBatch
    from .evaluation import evaluate
    from .session import trace

__getattr__ = attributes_at(__name__, {"trace": ".session", "Cache": ".cache", "Prompt": ".cache",
                                       "CacheBatch": ".cache_batch", "evaluate": ".evaluation",
                                       "TraceError": "..writing.trace_error", "SelectionError": "..writing.token_selection"})
