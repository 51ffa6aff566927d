"""Finds out by experiment how a model rotates its keys: architectures differ in which components form a pair, and some
omit RoPE in some layers."""
import torch

from . import attention
from ..writing.trace_error import TraceError

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}  # cos and sin are rounded to this type


class _KeyCollector:
    """Replaces a session and collects the keys."""
    key = None

    def on_attention(self, module, query, key, value, keywords):
        self.key = key[0, :, -1].double()


def _turned(key, frequencies, layout):
    """`key` [heads, d] rotated by one more position."""
    count = frequencies.numel()
    first, second = (range(count), range(count, 2 * count)) if layout == "half_split" else \
        (range(0, 2 * count, 2), range(1, 2 * count, 2))
    cos, sin, out = frequencies.cos(), frequencies.sin(), key.clone()
    out[:, first] = key[:, first] * cos - key[:, second] * sin
    out[:, second] = key[:, second] * cos + key[:, first] * sin
    return out


@torch.no_grad()
def rope_layout(decoder, modules):
    """The layout, half_split or interleaved, found by running the attention of every layer on one token at positions 0
    and 1. The model must use a traced implementation."""
    weight = modules[0].o_proj.weight
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(1, 1, decoder.config.hidden_size, generator=generator).to(weight.device, weight.dtype)
    possible = {"half_split", "interleaved"}
    for layer, module in enumerate(modules):
        keys = [_key_at(decoder, module, hidden, position, layer) for position in (0, 1)]
        frequencies = decoder.rotary_emb.inv_freq.double().to(keys[0].device)
        bound = TOLERANCE[weight.dtype] * keys[0].norm()
        possible = {layout for layout in possible if (_turned(keys[0], frequencies, layout) - keys[1]).norm() <= bound}
        if not possible:
            raise TraceError("does not turn its keys as the model's rotary embedding says, and as layers before it",
                             f"layer {layer}", "Only models with one RoPE for all layers are traced.")
    return "half_split" if "half_split" in possible else "interleaved"


def _key_at(decoder, module, hidden, position, layer):
    collector = _KeyCollector()
    places = torch.full((1, 1), position, dtype=torch.long, device=hidden.device)
    attention.set_current_session(collector)
    try:
        module(hidden_states=hidden, position_embeddings=decoder.rotary_emb(hidden, places), attention_mask=None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TraceError(f"cannot be run alone: {error}", f"layer {layer}", "This architecture is not traced.") from error
    finally:
        attention.set_current_session(None)
    if collector.key is None:
        raise TraceError("does not call transformers' AttentionInterface", f"layer {layer}",
                         "This architecture is not traced.")
    return collector.key
