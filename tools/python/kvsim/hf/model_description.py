"""Describes the model and the machine for a trace. Values are read from the running model, and from its configuration
only where necessary."""
import hashlib
import json
import os
import platform

import h5py
import numpy as np
import torch
import transformers

from .latent_attention import is_latent, output_projection
from .rotations import Rotations, learns_positions, output_of
from ..writing.trace_error import TraceError
from ..writing.trace_header import MAX_CONFIG, Capture, Model

MOVING_ROPE = {"dynamic"}


def _rope_type(rotation):
    return rotation.get("rope_type", rotation.get("type", "default"))


def rope_parameters(config, kind):
    """(theta, type) of the rotation of a kind of layer, from a configuration of transformers 5 or 4."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    by_kind = {name: value for name, value in found.items() if isinstance(value, dict)} or {kind: found}
    for value in by_kind.values():
        if _rope_type(value) in MOVING_ROPE:
            raise TraceError(f"RoPE of type {_rope_type(value)} changes its frequencies with the length: keys already stored keep "
                             "the old ones", type(config).__name__)
    found = by_kind.get(kind, {})
    theta = found.get("rope_theta", getattr(config, "rope_theta", None))
    return float(theta or 0.0), _rope_type(found)


def decoder_of(model):
    """The layers of a model, with what embeds its tokens and positions. Llama 4's model is its own decoder."""
    decoder = model.get_decoder()
    return model.model if decoder is model else decoder


def attention_modules(decoder):
    """The attention of each layer, in order."""
    return [module for _, module in sorted((module.layer_idx, module) for module in decoder.modules()
                                           if hasattr(module, "layer_idx") and output_of(module) is not None)]


def has_chunks(config):
    """Whether layers attend within chunks of the text (Llama 4)."""
    return "chunked_attention" in (getattr(config, "layer_types", None) or ())


def layer_windows(config):
    """The window or chunk of each layer from the configuration; -1: full attention."""
    window, sees_part = getattr(config, "sliding_window", None), "sliding_attention"
    if has_chunks(config):
        window, sees_part = config.attention_chunk_size, "chunked_attention"
    if getattr(config, "use_sliding_window", None) is False or not window:
        return [-1] * config.num_hidden_layers
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return [window] * config.num_hidden_layers
    return [window if kind == sees_part else -1 for kind in kinds]


def _sinks(modules, name):
    """The logit of each query head's sink, layer after layer; None: there are none."""
    sinks = [getattr(module, "sinks", None) for module in modules]
    if all(each is None for each in sinks):
        return None
    if any(each is None for each in sinks):
        raise TraceError("has sinks in some layers only", name, "Models with sinks in all layers or in none are traced.")
    return torch.cat([each.detach().float().reshape(-1) for each in sinks]).tolist()


def _layer_norm_eps(decoder):
    return next((module.eps for module in decoder.modules() if isinstance(module, torch.nn.LayerNorm)), 0.0)


def _has_bias(attention):
    for name in ("q_proj", "qkv_proj", "query_key_value"):
        if getattr(attention, name, None) is not None:
            return getattr(attention, name).bias is not None
    return False


def check_modules(model, config, decoder):
    """The attention of each layer; refuses models in which the hook does not find them."""
    if not hasattr(decoder, "rotary_emb") and not learns_positions(decoder):
        raise TraceError("has neither a rotary embedding of the whole decoder (rotary_emb) nor learned positions; such models are "
                         "traced", type(model).__name__)
    modules = attention_modules(decoder)
    if len(modules) != config.num_hidden_layers:
        raise TraceError(f"{len(modules)} of {config.num_hidden_layers} layers have an attention whose output projection is "
                         "called o_proj, dense or out_proj: by that name the hook finds queries, keys and values", type(model).__name__,
                         "tools/python/kvsim/hf/README.md lists architectures that are traced.")
    return modules


def leaves_pairs_apart(config, rotations):
    """Whether the checkpoint has the halves of pairs that rotate together, and the model leaves them apart (DeepSeek V3)."""
    return rotations.layout == "half_split" and bool(getattr(config, "rope_interleave", False))


def describe_model(model, directory=None):
    """(description, rotations) of a model, which must use a traced attention. `directory` is that of the checkpoint, for its
    verbatim config.json and the digest of its weights."""
    config, decoder = model.config.get_text_config(), decoder_of(model)
    modules = check_modules(model, config, decoder)
    rotations = Rotations(decoder, modules, config, type(model).__name__)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads, layout, latent = getattr(config, "num_key_value_heads", None) or heads, rotations.layout, {}
    if any(map(is_latent, modules)):
        rank, kv_heads = config.kv_lora_rank, 1
        head_dim = rank + config.qk_rope_head_dim
        latent = dict(values_in_keys=True, v_head_dim=rank, first_rotated=rank)
        layout = "interleaved" if leaves_pairs_apart(config, rotations) else layout
    first, frequencies, factors = modules[0], rotations.frequencies(), rotations.factors
    theta, kind = (0.0, "none") if learns_positions(decoder) else rope_parameters(config, rotations.first_kind)
    output = model.get_output_embeddings()
    return Model(
        n_layers=config.num_hidden_layers, n_q_heads=heads,
        n_kv_heads=kv_heads, head_dim=head_dim, **latent,
        vocab_size=config.vocab_size, rotary_dim=2 * frequencies.shape[1], hidden_size=config.hidden_size,
        attn_scale=float(getattr(first, "scaling", None) or head_dim ** -0.5),
        norm_eps=float(getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or _layer_norm_eps(decoder)),
        rope_theta=theta, rope_type=kind, rope_attention_factor=factors[0], rope_layout=layout,
        inv_freq=frequencies.ravel(), **(dict(rotation_factor=factors, layer_rotation=rotations.layer) if len(factors) > 1 else {}),
        logit_softcap=float(getattr(config, "attn_logit_softcapping", None) or 0.0), sinks=_sinks(modules, type(model).__name__),
        qk_norm=hasattr(first, "q_norm") or hasattr(first, "qk_norm"), qkv_bias=_has_bias(first),
        tied_embeddings=output is not None and output.weight is model.get_input_embeddings().weight,
        name=os.path.basename(os.path.normpath(directory or config._name_or_path or type(model).__name__)),
        revision=getattr(config, "_commit_hash", None) or "", model_type=config.model_type,
        architecture=(config.architectures or [type(model).__name__])[0], layer_window=layer_windows(config),
        chunked=has_chunks(config),
        config_json=_config_json(config, directory), weights_sha256=weights_digest(directory) if directory else ""), rotations


def _config_json(config, directory):
    if directory:
        with open(os.path.join(directory, "config.json"), "rb") as file:
            return file.read(MAX_CONFIG + 1)
    return config.to_json_string().encode()


def weights_digest(directory):
    """The digest over the sorted digests of the checkpoint's safetensors files, as in kvsim capture; empty without such
    files."""
    names, index = ["model.safetensors"], os.path.join(directory, "model.safetensors.index.json")
    if os.path.isfile(index):
        with open(index, encoding="utf-8") as file:
            names = set(json.load(file)["weight_map"].values())
    paths = [os.path.join(directory, name) for name in names]
    if not all(map(os.path.isfile, paths)):
        return ""
    digests = []
    for path in paths:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        digests.append(digest.hexdigest())
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()


def output_weights(attention, heads):
    """The output projection of a layer: [heads, v_head_dim, hidden_size]."""
    weight = output_of(attention).weight.detach()
    weight = weight.t().reshape(heads, -1, weight.shape[0])
    return output_projection(attention, weight) if is_latent(attention) else weight


def describe_tokenizer(tokenizer, directory):
    """(name, SHA-256) of the checkpoint's file that kvsim capture would read; without one, the name that transformers
    gives."""
    for name in ("tokenizer.json", "tokenizer.model") if directory else ():
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return name, hashlib.sha256(file.read()).hexdigest()
    name = getattr(tokenizer, "name_or_path", "")
    return os.path.basename(os.path.normpath(name)) if name else "", ""


def processor_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(": ", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def describe_capture(model, elem, kind):
    """Describes the run; `kind` is the attention implementation that computes."""
    device = next(model.parameters()).device
    cuda = device.type == "cuda"
    return Capture(
        source="transformers", device_name=torch.cuda.get_device_name(device) if cuda else device.type,
        device_kind=device.type, cpu_model=processor_name(),
        software=f"transformers {transformers.__version__}, torch {torch.__version__}, h5py {h5py.__version__}, "
                 f"numpy {np.__version__}, Python {platform.python_version()}",
        compute_dtype=elem, accum_dtype="f32",
        math_mode="tf32" if cuda and elem == "f32" and torch.backends.cuda.matmul.allow_tf32 else "ieee",
        attention_kernel=f"transformers {kind}", cuda_version=torch.version.cuda or "" if cuda else "",
        threads=torch.get_num_threads(),
        rope_fp32=elem == "f32")  # transformers rotates with cos and sin rounded to the model's type
