"""What a trace says of the model that vLLM runs, read from its layers; and what of it is refused."""
import os
import platform

import h5py
import numpy as np
import torch
import vllm
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.tokenizers.registry import cached_tokenizer_from_config

from .latent_layer import absorbed, is_latent, latent_keys
from ..hf.model_description import describe_tokenizer, processor_name, weights_digest
from ..hf.token_text import TokenText
from ..hf.writer_thread import ELEMS
from ..writing.trace_error import TraceError
from ..writing.trace_header import FLAGS, MAX_CONFIG, Capture, Model

TESTED = "0.32.0"


class EngineModel:
    """`layers`: the attention of each, in order. `latent`: it is latent attention. `about`: the trace's model. `elem`: the type of its
    tensors."""

    def __init__(self, runner):
        self._config, self._runner = runner.vllm_config, runner
        self.name = self._config.model_config.model
        own = set(runner.get_model().modules())  # a model that drafts has layers, too
        found = {name: layer for name, layer in self._config.compilation_config.static_forward_context.items()
                 if layer in own and isinstance(layer, AttentionLayerBase)}
        self.layers = [layer for layer in found.values() if hasattr(layer, "impl")]
        self.latent = bool(self.layers) and is_latent(self.layers[0])
        self._refuse({name: layer for name, layer in found.items()
                      if not isinstance(layer, MLAAttention if self.latent else Attention)})
        dtype = self._config.model_config.dtype
        if dtype not in ELEMS:
            raise TraceError(f"computes in {dtype}; float32, float16 and bfloat16 are recorded", self.name)
        self.elem = ELEMS[dtype]
        self.rank, self.ranks = get_tensor_model_parallel_rank(), self._config.parallel_config.tensor_parallel_size
        self.about = self._describe()
        self._text = self._tokenizer()

    def _refuse(self, others):
        config, parallel = self._config, self._config.parallel_config
        remedy = "kvsim.vllm records models of text."
        for holds, what, remedy in (
                (not self.layers, "no layer of it has keys and values in a cache", remedy),
                (others, f"layer {next(iter(others), '')} is {type(next(iter(others.values()), None)).__name__}: states, and layers "
                         "of which only some have latent attention, are not recorded", remedy),
                (parallel.world_size > parallel.tensor_parallel_size or getattr(parallel, "decode_context_parallel_size", 1) > 1,
                 "divides layers or tokens among workers", "Start vLLM with tensor_parallel_size alone."),
                (config.speculative_config and (config.scheduler_config.async_scheduling or config.speculative_config.use_ngram_gpu()),
                 "schedules a pass before it knows which drafts the last one rejected", "Start vLLM with async_scheduling=False."),
                (config.model_config.uses_mrope, "has positions on several axes", remedy),
                (config.compilation_config.cudagraph_mode.has_full_cudagraphs() and not config.model_config.enforce_eager
                 and self._runner.device.type == "cuda",
                 "replays attention in CUDA graphs, unseen by Python",
                 "Start vLLM with enforce_eager=True, or compilation_config={\"cudagraph_mode\": \"PIECEWISE\"}.")):
            if holds:
                raise TraceError(what, self.name, remedy)
        if not hasattr(self._runner, "input_batch"):
            raise TraceError("has a model runner that kvsim does not know", f"vllm {vllm.__version__}",
                             f"Set VLLM_USE_V2_MODEL_RUNNER=0; tested: {TESTED}.")
        for layer in self.layers:
            impl = layer.impl
            odd = [said for said, has in (
                ("keys that an indexer picks", layer.use_sparse),
                ("no projection from latents to keys (W_UK_T)", getattr(layer, "W_UK_T", None) is None),
                ("attention that is not causal", layer.non_causal_multi_token_decode)) if has] if self.latent else [said for said, has in (
                ("slopes (ALiBi)", getattr(impl, "alibi_slopes", None) is not None), ("attention sinks", layer.has_sink),
                ("attention within chunks", "Chunked" in type(layer).__name__),  # Llama 4: kvsim capture and kvsim.hf record it
                ("attention that is not causal", layer.attn_type != "decoder"),
                ("keys of another layer", layer.kv_sharing_target_layer_name)) if has]
            if odd:
                raise TraceError(f"{layer.layer_name} has {odd[0]}", self.name,
                                 "A replay would compute another attention, so such models are not recorded.")

    def _describe(self):
        first, hf, config = self.layers[0], self._config.model_config.hf_text_config, self._config.model_config
        value_size = "kv_lora_rank" if self.latent else "head_size_v"
        for name in ("num_heads", "num_kv_heads", "head_size", value_size):
            if len({getattr(layer, name) for layer in self.layers}) > 1:
                raise TraceError(f"its layers differ in {name}, which a trace has once", self.name)
        if len({(layer.impl.scale, _cap(layer)) for layer in self.layers}) > 1:
            raise TraceError("its layers differ in the scale or cap of logits, which a trace has once", self.name)
        windows = [layer.sliding_window or -1 for layer in self.layers]
        modules = dict(self._runner.get_model().named_modules())
        ropes = [getattr(modules.get(layer.layer_name.rpartition(".")[0]), "rotary_emb", None) for layer in self.layers]
        turning = [rope for rope in ropes if rope is not None]
        if len({(rope.rotary_dim, rope.is_neox_style) for rope in turning}) > 1:
            raise TraceError("rotates keys of some layers by other components than those of others", self.name)
        pairs = turning[0].rotary_dim // 2 if turning else 0
        turns = [_turns(rope, self.name) if rope is not None else (tuple([0.0] * pairs), 1.0) for rope in ropes]
        # Rotation 0 is that of layers with full attention, as in traces of kvsim capture.
        rotations = list(dict.fromkeys(turn for _, turn in sorted(zip(windows, turns), key=lambda pair: pair[0])))
        several = len(rotations) > 1
        main = next((rope for rope, turn in zip(ropes, turns) if rope is not None and turn == rotations[0]), None)
        return Model(
            n_layers=len(self.layers), n_q_heads=first.num_heads, n_kv_heads=first.num_kv_heads, head_dim=first.head_size,
            v_head_dim=getattr(first, value_size), values_in_keys=self.latent, first_rotated=first.kv_lora_rank if self.latent else 0,
            vocab_size=config.get_vocab_size(), rotary_dim=2 * pairs, hidden_size=config.get_hidden_size(),
            attn_scale=float(first.impl.scale), logit_softcap=_cap(first), norm_eps=float(getattr(hf, "rms_norm_eps", 0.0) or 0.0),
            layer_window=windows,
            rope_theta=float(main.base) if main else 0.0, rope_attention_factor=rotations[0][1],
            rope_layout="half_split" if not turning or turning[0].is_neox_style else "interleaved",
            inv_freq=np.array([frequencies for frequencies, _ in rotations], "<f4").ravel(),
            layer_rotation=[rotations.index(turn) for turn in turns] if several else None,
            rotation_factor=[factor for _, factor in rotations] if several else None,
            name=os.path.basename(os.path.normpath(self.name)), model_type=hf.model_type, architecture=config.architecture,
            weights_sha256=weights_digest(self.name) if os.path.isdir(self.name) else "",
            config_json=hf.to_json_string().encode()[:MAX_CONFIG])

    def rows(self, layer, query, key, value):
        """What a trace has of the rows [n, heads, dim] that a layer's attention takes: a tensor for each name."""
        if self.latent:
            return {"q": absorbed(layer, query), "k": latent_keys(key, value)}
        return {"q": query, "k": key, "v": value}

    def _tokenizer(self):
        """(name, digest, text of tokens); without a tokenizer empty and None."""
        if self._config.model_config.skip_tokenizer_init:
            return "", "", None
        tokenizer = cached_tokenizer_from_config(self._config.model_config)
        return *describe_tokenizer(tokenizer, self.name if os.path.isdir(self.name) else None), TokenText(tokenizer)

    def spell(self, header):
        """Puts the tokenizer and the text of tokens into a header."""
        header.tokenizer_name, header.tokenizer_sha256, text = self._text
        if text is not None:
            header.flags_known |= FLAGS["special"] | FLAGS["white_space"] | FLAGS["punctuation"] | FLAGS["digit"]
            header.token_text = [text.bytes(token_id) for token_id in header.token_id]
            header.token_flags = [known | text.flags(token_id) for known, token_id in zip(header.token_flags, header.token_id)]

    def capture(self, sampling):
        cuda, device = self._runner.device.type == "cuda", self._runner.device
        version = vllm.__version__ + ("" if vllm.__version__.startswith(TESTED) else f", tested {TESTED}")
        return Capture(
            "converted:vllm", device_name=torch.cuda.get_device_name(device) if cuda else device.type, device_kind=device.type,
            cpu_model=processor_name(), compute_dtype=self.elem, accum_dtype="f32", sampling=sampling, threads=torch.get_num_threads(),
            software=f"vllm {version}, torch {torch.__version__}, h5py {h5py.__version__}, numpy {np.__version__}, "
                     f"Python {platform.python_version()}",
            attention_kernel=f"vllm {self.layers[0].attn_backend.get_name()}", cuda_version=torch.version.cuda or "" if cuda else "",
            rank=self._said_rank(), prefill_chunk=self._config.scheduler_config.max_num_batched_tokens)

    def _said_rank(self):
        """What a trace with a part of the heads says of itself."""
        if self.ranks == 1:
            return ""
        copies = self.ranks // min(self.ranks, 1 if self.latent else self._config.model_config.get_total_num_kv_heads())
        return f"{self.rank} of {self.ranks}" + (f", each KV head on {copies}" if copies > 1 else "")

    def cache_tokens(self):
        """Tokens that the prefix cache holds: one block is vLLM's null block. None for several groups of layers."""
        cache = self._runner.kv_cache_config
        if len(cache.kv_cache_groups) != 1:
            return None
        return (cache.num_blocks - 1) * cache.kv_cache_groups[0].kv_cache_spec.block_size


def _cap(layer):
    return float(getattr(layer.impl, "logits_soft_cap", None) or 0.0)


def _turns(rope, where):
    """(frequencies, factor) of a rotary embedding, from its table in float32."""
    try:
        table = rope._compute_cos_sin_cache().double()
    except (AttributeError, TypeError):
        table = None
    if table is not None and len(table) > 7:
        cos, sin = table.chunk(2, dim=-1)
        angles, factor = torch.atan2(sin[1], cos[1]), float((cos[1] ** 2 + sin[1] ** 2).sqrt().mean())
        further = torch.stack([(7 * angles).cos(), (7 * angles).sin()]) * factor
        if torch.allclose(further, torch.stack([cos[7], sin[7]]), atol=1e-5):
            return tuple(angles.float().tolist()), round(factor, 6)
    raise TraceError(f"rotates keys as {type(rope).__name__}: not by one frequency for each pair", where,
                     "Such a rotation is not recorded.")
