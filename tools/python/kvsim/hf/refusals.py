"""Refuses by name what the hook cannot record truthfully, before or while it happens."""
import torch

from ..writing.trace_error import TraceError

CACHE_LAYERS = {"DynamicLayer", "DynamicSlidingWindowLayer"}
ATTENTION_KINDS = {"full_attention", "sliding_attention", "chunked_attention"}


def check_model(model):
    """Refuses kinds of models whose attention calls are not softmax(q k) over one growing row of tokens."""
    name = type(model).__name__
    if hasattr(model, "_orig_mod") or name == "OptimizedModule":
        raise TraceError("is compiled: a compiled graph does not call the hook", name, "Trace the model itself.")
    if not hasattr(model, "config") or not hasattr(model, "get_decoder"):
        raise TraceError("is not a model of transformers", name)
    if model.config.is_encoder_decoder:
        raise TraceError("is an encoder-decoder; only decoders are traced", name)
    if model.training:
        raise TraceError("is in training mode: dropout would be recorded", name, "Call model.eval() first.")
    if (getattr(model, "_tp_size", None) or 1) > 1 or any(
            type(parameter).__name__ == "DTensor" for parameter in model.parameters()):
        raise TraceError("is split over devices by tensor parallelism: no device has all heads", name,
                         "Load it without tp_plan.")
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - ATTENTION_KINDS
    if kinds:
        raise TraceError(f"has layers of {', '.join(sorted(kinds))}; full, sliding-window and chunked attention are traced", name)
    if {"sliding_attention", "chunked_attention"} <= set(getattr(config, "layer_types", None) or ()):
        raise TraceError("has layers with windows and layers with chunks; a trace says one of both", name)


def check_generate(model, arguments):
    """Refuses options of model.generate() under which calls are not one path of tokens."""
    config = arguments.get("generation_config") or model.generation_config

    def option(name):
        return arguments[name] if name in arguments else getattr(config, name, None)

    for name, usual in (("num_beams", 1), ("num_return_sequences", 1)):
        if (option(name) or usual) > usual:
            raise TraceError(f"{name}={option(name)}: one sequence at a time is traced", "generate()",
                             f"Set {name}=1; several samples are several calls, and share their prefix.")
    for name in ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit", "penalty_alpha", "dola_layers"):
        if arguments.get(name) is not None or getattr(config, name, None) is not None:
            raise TraceError(f"{name}: assisted and contrastive decoding run tokens that are then discarded", "generate()",
                             f"Generate without {name}.")
    if option("cache_implementation") not in (None, "dynamic", "dynamic_full", "hybrid"):
        raise TraceError(f"cache_implementation=\"{option('cache_implementation')}\": the trace needs keys as they "
                         "are appended, unquantised", "generate()", "Leave it out, or set \"dynamic\".")


def check_cache(cache):
    if cache is None:
        return
    layers = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    if type(cache).__name__ != "DynamicCache" or not layers <= CACHE_LAYERS:
        what = ", ".join(sorted(layers - CACHE_LAYERS)) or type(cache).__name__
        raise TraceError(f"{what}: static, quantised and other caches are not traced", "past_key_values",
                         "Use transformers.DynamicCache, the default.")


def check_call(ids, past, arguments):
    """Checks the arguments of one forward call of the decoder over `ids` after `past` tokens."""
    if torch.compiler.is_compiling():
        raise TraceError("runs under torch.compile: a compiled graph does not call the hook", "forward",
                         "Trace the model uncompiled; generate() takes disable_compile=True.")
    if ids is None or ids.ndim != 2:
        raise TraceError("has no input_ids: a trace needs the tokens, not their embeddings", "forward")
    if ids.shape[0] != 1:
        raise TraceError(f"a batch of {ids.shape[0]}: one sequence at a time is traced", "forward",
                         "Run the prompts one by one; a shared prefix is stored once.")
    mask = arguments.get("attention_mask")
    if mask is not None and (not torch.is_tensor(mask) or mask.ndim != 2):
        raise TraceError("brings its own attention mask; causal attention is traced", "forward")
    if mask is not None and not bool(mask.all()):
        raise TraceError("is padded: the attention mask hides tokens", "forward", "Run one prompt at a time, unpadded.")
    expected = torch.arange(past, past + ids.shape[1])
    for name in ("position_ids", "cache_position"):
        positions = arguments.get(name)
        if positions is not None and not torch.equal(positions.reshape(-1).cpu(), expected):
            raise TraceError(f"{name} are not the {len(expected)} after the {past} tokens that this session saw before",
                             "forward", "A cache filled or cut outside the trace, or padding, does this.")


def check_attention(model, arguments):
    """Checks the arguments of one call of the attention function against the model's description."""
    if (arguments.get("s_aux") is None) != (model.sinks is None) or (arguments.get("softcap") or 0.0) != model.logit_softcap:
        raise TraceError("attention with other sinks or another cap than the description of the model says", "attention",
                         "This architecture is not traced.")
    for name in ("position_bias", "cache", "cu_seq_lens_q"):
        if arguments.get(name) is not None:
            raise TraceError(f"attention with {name} is more than softmax(q k)", "attention",
                             "This architecture or serving mode is not traced.")


def check_tensors(model, layer, tensors, dtype, past, count, arguments, expected=None):
    """Checks that query, key and value of a layer, [1, heads, tokens, d], have the shapes of the model's description, or the
    `expected` ones, for `count` tokens after `past`."""
    where = f"layer {layer}"
    if any(tensor.dtype != dtype for tensor in tensors):
        raise TraceError(f"attention computes in {tensors[1].dtype}, the model in {dtype}", where,
                         "autocast and mixed types are not traced.")
    shapes = [tuple(tensor.shape[1::2]) for tensor in tensors]
    expected = expected or [(model.n_q_heads, model.head_dim), (model.n_kv_heads, model.head_dim),
                            (model.n_kv_heads, model.v_head_dim)]
    if shapes != expected:
        raise TraceError(f"q, k, v have heads and dimensions {shapes}, the configuration says {expected}", where,
                         "This architecture is not traced.")
    window = arguments.get("sliding_window", model.layer_window[layer]) or -1
    if window != model.layer_window[layer]:
        raise TraceError(f"attends with window {window}, the configuration says {model.layer_window[layer]}", where)
    if abs((arguments.get("scaling") or model.attn_scale) - model.attn_scale) > 1e-9:
        raise TraceError(f"scales scores by {arguments['scaling']}, layer 0 by {model.attn_scale}", where)
    lengths = {past + count}
    if window > 0:
        lengths.add(min(past, window - 1) + count)
    keys = tensors[1].shape[2]
    if keys not in lengths:
        raise TraceError(f"{keys} keys arrive where {past + count} tokens have run", where,
                         "A static cache, or one filled outside the trace, does this.")
