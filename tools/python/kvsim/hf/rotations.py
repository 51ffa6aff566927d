"""Finds out by experiment how each layer of a model rotates its keys: architectures differ in which components form a pair,
some have a rotary embedding for each kind of layer, and some layers rotate nothing."""
import numpy as np
import torch

from . import attention
from .latent_attention import is_latent
from ..writing.trace_error import TraceError

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}  # cos and sin are rounded to this type
LAYOUTS = ("half_split", "interleaved")


def output_of(module):
    """The output projection of an attention, by which it is known; None: `module` is none."""
    for name in ("o_proj", "dense", "out_proj"):  # dense: GPT-NeoX, Phi; out_proj: OPT
        if getattr(module, name, None) is not None:
            return getattr(module, name)
    return None


class _KeyCollector:
    """Replaces a session and collects the keys."""
    key = None

    def on_attention(self, module, query, key, value, keywords):
        self.key = key[0, :, -1].double()


class _Embedding:
    """A rotary embedding of the decoder; `kind` is the kind of layer that it is for, where its module has several."""

    def __init__(self, module, kind=None):
        self._module, self._kind = module, kind
        self._prefix = f"{kind}_" if kind else ""

    @property
    def inv_freq(self):
        return getattr(self._module, self._prefix + "inv_freq")

    @property
    def factor(self):
        return float(getattr(self._module, self._prefix + "attention_scaling", 1.0))

    def angles(self, hidden, places):
        return self._module(hidden, places, *([self._kind] if self._kind else []))


class _NoRotation:
    """What layers have that rotate nothing."""
    factor = 1.0

    def __init__(self, pairs):
        self.inv_freq = torch.zeros(pairs)


def learns_positions(decoder):
    """Whether positions are embeddings that the decoder adds to those of its tokens (OPT), and no layer rotates."""
    return isinstance(getattr(decoder, "embed_positions", None), torch.nn.Embedding)


def _embeddings(decoder, kinds, name):
    """The embedding of each kind of layer of `kinds`."""
    module = decoder.rotary_emb
    if getattr(module, "inv_freq", None) is not None:
        local = getattr(decoder, "rotary_emb_local", None)  # Gemma 3 before transformers 5
        one, apart = _Embedding(module), {"sliding_attention": _Embedding(local)} if local is not None else {}
        return {kind: apart.get(kind, one) for kind in kinds}
    if not all(hasattr(module, f"{kind}_inv_freq") for kind in kinds):
        raise TraceError("has neither a rotary embedding of the whole decoder (rotary_emb.inv_freq) nor one for each kind of its "
                         "layers; models with such a RoPE are traced", name)
    return {kind: _Embedding(module, kind) for kind in kinds}


class Rotations:
    """layout       half_split or interleaved
    layer        [n_layers], the number of each layer's rotation
    first_kind   the kind of layer that has rotation 0; None in models without kinds

    `modules` are the attention of each layer; the model must use a traced implementation, and runs on one token."""

    def __init__(self, decoder, modules, config, name):
        if learns_positions(decoder):
            self._choices, self.layout, self.layer, self.first_kind = [_NoRotation(0)], LAYOUTS[0], [0] * len(modules), None
            return
        kinds = getattr(config, "layer_types", None) or [None] * len(modules)
        embeddings = _embeddings(decoder, sorted(set(kinds), key=lambda kind: (kind != "full_attention", kind)), name)
        sizes = {embedding.inv_freq.numel() for embedding in embeddings.values()}
        if len(sizes) > 1:
            raise TraceError("rotates keys of some layers by more components than those of others", name,
                             "Layers that rotate equally many are traced.")
        self._choices = list(embeddings.values()) + [_NoRotation(sizes.pop())]
        possible, found, weight = set(LAYOUTS), [], output_of(modules[0]).weight
        hidden = torch.randn(1, 1, config.hidden_size, generator=torch.Generator().manual_seed(1))
        hidden = hidden.to(weight.device, weight.dtype)
        for layer, (module, kind) in enumerate(zip(modules, kinds)):
            embedding = embeddings[kind]
            plain = module.qk_nope_head_dim if is_latent(module) else 0  # components before those that rotate
            keys = [_key_at(embedding, module, hidden, position, layer)[:, plain:] for position in (0, 1)]
            bound = TOLERANCE[weight.dtype] * keys[0].norm()
            if (keys[0] - keys[1]).norm() <= bound:
                found.append(self._choices[-1])
                continue
            found.append(embedding)
            frequencies = embedding.inv_freq.double().to(keys[0].device)
            possible = {layout for layout in possible
                        if (_turned(keys[0], frequencies, layout) - keys[1]).norm() <= bound}
            if not possible:
                raise TraceError("does not turn its keys as the model's rotary embedding says, and as layers before it",
                                 f"layer {layer}", "Only models whose layers form pairs of the same components are traced.")
        self.layout = next(layout for layout in LAYOUTS if layout in possible)
        self._choices = _different([choice for choice in self._choices if choice in found])
        self.layer = [next(i for i, choice in enumerate(self._choices) if _same(choice, one)) for one in found]
        self.first_kind = kinds[self.layer.index(0)]

    def frequencies(self):
        """Of each rotation now, [rotations, pairs] float32: longrope changes them with the length of a call."""
        return np.stack([choice.inv_freq.float().cpu().numpy() for choice in self._choices])

    @property
    def factors(self):
        """What each rotation multiplies queries and keys by."""
        return [choice.factor for choice in self._choices]


def _same(one, other):
    return one is other or one.factor == other.factor and torch.equal(one.inv_freq.cpu(), other.inv_freq.cpu())


def _different(choices):
    return [choice for i, choice in enumerate(choices) if not any(_same(choice, before) for before in choices[:i])]


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
def _key_at(embedding, module, hidden, position, layer):
    collector = _KeyCollector()
    places = torch.full((1, 1), position, dtype=torch.long, device=hidden.device)
    attention.set_current_session(collector)
    try:
        module(hidden_states=hidden, position_embeddings=embedding.angles(hidden, places), attention_mask=None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TraceError(f"cannot be run alone: {error}", f"layer {layer}", "This architecture is not traced.") from error
    finally:
        attention.set_current_session(None)
    if collector.key is None:
        raise TraceError("does not call transformers' AttentionInterface", f"layer {layer}",
                         "This architecture is not traced.")
    return collector.key
