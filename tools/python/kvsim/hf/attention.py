"""The attention function that transformers calls while a session records: it passes its tensors to the session and
calls the model's own implementation.

It is registered together with a mask function of the same name, because without one transformers passes no mask, and
causality is lost.
"""
import sys
import threading

import torch
import transformers

from ..writing.trace_error import TraceError

try:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface
except ImportError as error:
    raise TraceError("has no AttentionInterface with masks", f"transformers {transformers.__version__}",
                     "A newer one is needed; 4.56 and 5.23 are tested.") from error

_current = threading.local()  # the session whose forward call this thread is in
BLOCK_ELEMENTS = 1 << 24  # probabilities computed at a time


def current_session():
    return getattr(_current, "session", None)


def set_current_session(session):
    _current.session = session


def _eager_function(module):
    """The eager attention from the architecture's own file, because the registry does not have it."""
    return sys.modules[type(module).__module__].eager_attention_forward


def sdpa(module, *arguments, **keywords):
    return AttentionInterface()["sdpa"](module, *arguments, **keywords)


def eager(module, *arguments, **keywords):
    return _eager_function(module)(module, *arguments, **keywords)


def unscaled(module, query, keywords):
    """Queries before they are scaled, and the arguments with their scale: OPT's attention gets them scaled, with a scale of 1."""
    scale = getattr(module, "scaling", 1.0)
    if keywords.get("scaling") != 1.0 or scale == 1.0:
        return query, keywords
    return query / scale, keywords | {"scaling": scale}


def _traced(inner):
    def attention(module, query, key, value, attention_mask, *rest, **keywords):
        session = current_session()
        if session is not None:
            session.on_attention(module, query, key, value, keywords)
        return inner(module, query, key, value, attention_mask, *rest, **keywords)
    return attention


def kind_of(decoder):
    """What computes attention while the hook looks on: "eager" where the model says so or has nothing else, or else "sdpa"."""
    eager_only = not getattr(decoder, "_supports_sdpa", True)
    return "eager" if eager_only or "eager" in str(decoder.config._attn_implementation) else "sdpa"


def register(kind):
    """Registers a traced version of the implementation "sdpa" or "eager" and returns its name. The registries of
    transformers belong to the process, so the name stays registered; outside a session it calls the implementation that
    it wraps."""
    name = f"kvsim_traced_{kind}"
    AttentionInterface.register(name, _traced({"sdpa": sdpa, "eager": eager}[kind]))
    AttentionMaskInterface.register(name, AttentionMaskInterface()[kind])
    return name


def rows_per_block(heads, keys):
    """Number of queries whose probabilities are in memory at a time, so that no square matrix of a long context
    exists."""
    return max(1, min(64, BLOCK_ELEMENTS // (heads * keys)))


def probabilities(query, key, positions, first_key, model, layer):
    """The probability that each query gives each key: [Hq, n, keys] in float32.

    query [Hq, n, d] at `positions` (ascending, along the path), key [Hkv, keys, d] from position `first_key` on. Works
    by groups of query heads, so that no key is copied per query head. `model`: a trace's description of it."""
    heads, count, dim = query.shape
    kv_heads, keys = key.shape[0], key.shape[1]
    grouped = query.float().reshape(kv_heads, heads // kv_heads * count, dim)
    scores = (grouped @ key.float().transpose(1, 2)).mul_(model.attn_scale).reshape(heads, count, keys)
    if model.logit_softcap:
        scores = torch.tanh(scores / model.logit_softcap) * model.logit_softcap
    row = torch.tensor(list(positions), device=scores.device)[:, None]
    column = torch.arange(first_key, first_key + keys, device=scores.device)[None, :]
    visible = (column <= row) & (column >= model.first_seen(layer, row))
    scores = scores.masked_fill_(~visible, float("-inf"))
    if model.sinks is None:
        return scores.softmax(-1)
    return softmax_beside(scores, torch.tensor(model.sinks[layer * heads:(layer + 1) * heads], device=scores.device))


def softmax_beside(scores, sinks):
    """The softmax of scores [.., heads, tokens, keys], in which each head's logit in `sinks` [.., heads] takes part; None: there
    are none."""
    if sinks is None:
        return scores.softmax(-1)
    return torch.cat([scores, sinks[..., None, None].expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]
