#!/usr/bin/env python3
"""Makes the golden checkpoints of tests/unit/capture with transformers, an implementation that shares no code with kvsim.

    python3 tests/golden/capture/make_golden.py [VARIANT ...]   (needs torch, transformers, safetensors; wrote with 5.23 / 2.15)

One folder per variant of the Llama family: a random 2-layer checkpoint in Hugging Face layout and golden.safetensors
with what transformers computes from it in float32, eager attention, on one CPU thread:
    tokens      I32 [T]           input ids
    q.L k.L     F32 [heads, T, d] after bias, q/k norm and rotary embedding
    k_pre.L     F32 [heads, T, d] keys before the rotary embedding
    v.L         F32 [heads, T, d]
    rows.L      F32 [heads, 8, T] attention probabilities of the last 8 tokens
    out.L       F32 [T, hidden]   residual stream after the layer
    logits      F32 [8, vocab]    of the last 8 tokens
    bf16.STAGE  F32 [1]           for each of the stages above: how far transformers' own bfloat16 run of the same
                                  checkpoint is from these numbers, |bf16 - f32| / |f32| (Frobenius)
Weights are drawn wide enough for attention to have shape, and stored in 16 bits except in two variants.
"""
import inspect
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (Cohere2Config, Cohere2ForCausalLM, CohereConfig, CohereForCausalLM, DeepseekV2Config,
                          DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Exaone4Config, Exaone4ForCausalLM,
                          Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM, Glm4Config,
                          Glm4ForCausalLM, GlmConfig, GlmForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, GptOssConfig, GptOssForCausalLM,
                          GraniteConfig, GraniteForCausalLM, Llama4ForCausalLM, Llama4TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Olmo3Config, Olmo3ForCausalLM, OlmoeConfig, OlmoeForCausalLM, OPTConfig, OPTForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = 40
LAST = 8
SHAPE = dict(vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5,
             bos_token_id=1, eos_token_id=2)
MIXED = ["sliding_attention", "full_attention"]
PHI3 = dict(head_dim=None, pad_token_id=0)
LATENT = dict(head_dim=None, pad_token_id=0, num_key_value_heads=4, tie_word_embeddings=True, kv_lora_rank=16, qk_nope_head_dim=8,
              qk_rope_head_dim=4, v_head_dim=6, first_k_dense_replace=1, moe_intermediate_size=8)
NEOX = dict(num_key_value_heads=None, head_dim=None, hidden_size=64, rms_norm_eps=None, layer_norm_eps=1e-4)
OPT = dict(num_key_value_heads=None, head_dim=None, rms_norm_eps=None, intermediate_size=None, ffn_dim=48)
NULL = "null"  # None stands for what the class takes

VARIANTS = {
    "llama_untied_f32": (LlamaConfig, LlamaForCausalLM, torch.float32, {}),
    "llama_tied": (LlamaConfig, LlamaForCausalLM, torch.bfloat16,
                   dict(hidden_size=64, head_dim=None, tie_word_embeddings=True)),
    "llama_attention_bias": (LlamaConfig, LlamaForCausalLM, torch.float16, dict(attention_bias=True, mlp_bias=True)),
    "llama_rope_llama3": (LlamaConfig, LlamaForCausalLM, torch.bfloat16,
                          dict(rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                                                    low_freq_factor=1.0, high_freq_factor=4.0,
                                                    original_max_position_embeddings=32))),
    "llama_rope_linear": (LlamaConfig, LlamaForCausalLM, torch.bfloat16,
                          dict(rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=4.0))),
    "llama_sharded_f32": (LlamaConfig, LlamaForCausalLM, torch.float32, dict(tie_word_embeddings=True)),
    "mistral_window": (MistralConfig, MistralForCausalLM, torch.bfloat16, dict(sliding_window=7)),
    "qwen2_late_window": (Qwen2Config, Qwen2ForCausalLM, torch.bfloat16,
                          dict(head_dim=None, hidden_size=64, use_sliding_window=True, sliding_window=5,
                               max_window_layers=1, tie_word_embeddings=True)),
    "qwen3_qk_norm": (Qwen3Config, Qwen3ForCausalLM, torch.bfloat16, dict(tie_word_embeddings=True)),
    # From here on heads are narrower and embeddings tied where nothing speaks against it: smaller files.
    "llama_rope_yarn": (LlamaConfig, LlamaForCausalLM, torch.bfloat16,
                        dict(tie_word_embeddings=True, head_dim=8,
                             rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0,
                                                  original_max_position_embeddings=32))),
    "qwen2_mixed_windows": (Qwen2Config, Qwen2ForCausalLM, torch.bfloat16,
                            dict(head_dim=None, use_sliding_window=True, sliding_window=5, max_window_layers=2,
                                 layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True)),
    "qwen3_untied_bias": (Qwen3Config, Qwen3ForCausalLM, torch.float16, dict(head_dim=10, attention_bias=True)),
    "phi3_window": (Phi3Config, Phi3ForCausalLM, torch.bfloat16, PHI3 | dict(sliding_window=7)),
    "phi3_partial_rotary": (Phi3Config, Phi3ForCausalLM, torch.bfloat16,
                            PHI3 | dict(partial_rotary_factor=0.75, tie_word_embeddings=True)),
    "phi3_longrope_short": (Phi3Config, Phi3ForCausalLM, torch.bfloat16,
                            PHI3 | dict(original_max_position_embeddings=64, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="longrope", rope_theta=1000.0,
                                                             short_factor=[1.0, 1.25, 1.5, 2.0],
                                                             long_factor=[1.5, 2.5, 4.0, 8.0]))),
    "phi3_longrope_long": (Phi3Config, Phi3ForCausalLM, torch.float16,
                           PHI3 | dict(original_max_position_embeddings=32, tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="longrope", rope_theta=1000.0,
                                                            partial_rotary_factor=0.75,
                                                            short_factor=[1.0, 1.25, 1.5],
                                                            long_factor=[1.5, 2.5, 4.0]))),
    "gemma_scaled_embedding": (GemmaConfig, GemmaForCausalLM, torch.bfloat16, dict(tie_word_embeddings=True)),
    "granite_multipliers": (GraniteConfig, GraniteForCausalLM, torch.bfloat16,
                            dict(head_dim=None, tie_word_embeddings=True, embedding_multiplier=3.0, residual_multiplier=0.6,
                                 attention_multiplier=0.2, logits_scaling=2.5)),
    "mixtral_experts": (MixtralConfig, MixtralForCausalLM, torch.bfloat16,
                        dict(tie_word_embeddings=True, num_local_experts=4, intermediate_size=16)),
    "olmo2_norms_behind": (Olmo2Config, Olmo2ForCausalLM, torch.bfloat16, dict(head_dim=None, tie_word_embeddings=True)),
    # A layer of experts and what all tokens share, behind one without.
    "qwen2_moe_shared": (Qwen2MoeConfig, Qwen2MoeForCausalLM, torch.bfloat16,
                         dict(head_dim=None, tie_word_embeddings=True, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=8,
                              shared_expert_intermediate_size=24, decoder_sparse_step=2)),
    "qwen3_moe_experts": (Qwen3MoeConfig, Qwen3MoeForCausalLM, torch.float16,
                          dict(tie_word_embeddings=True, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=8,
                               norm_topk_prob=True)),
    "gemma3_two_rotations": (Gemma3TextConfig, Gemma3ForCausalLM, torch.bfloat16,
                             dict(tie_word_embeddings=True, sliding_window=5, query_pre_attn_scalar=24,
                                  layer_types=["sliding_attention", "full_attention"],
                                  rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                                       full_attention=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)))),
    "smollm3_unrotated_layer": (SmolLM3Config, SmolLM3ForCausalLM, torch.bfloat16,
                                dict(head_dim=None, pad_token_id=0, tie_word_embeddings=True, no_rope_layers=[1, 0])),
    "olmo3_yarn_in_full_layers": (Olmo3Config, Olmo3ForCausalLM, torch.bfloat16,
                                  dict(head_dim=None, pad_token_id=0, tie_word_embeddings=True, sliding_window=5, layer_types=MIXED,
                                       rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                                            full_attention=dict(rope_type="yarn", rope_theta=100.0, factor=4.0,
                                                                                beta_fast=4.0,
                                                                                original_max_position_embeddings=32)))),
    "exaone4_rotated_windows": (Exaone4Config, Exaone4ForCausalLM, torch.bfloat16,
                                dict(tie_word_embeddings=True, sliding_window=5, layer_types=MIXED)),
    "glm_interleaved": (GlmConfig, GlmForCausalLM, torch.bfloat16, dict(pad_token_id=0, tie_word_embeddings=True)),
    "glm4_four_norms": (Glm4Config, Glm4ForCausalLM, torch.bfloat16,
                        dict(pad_token_id=0, tie_word_embeddings=True, attention_bias=False)),
    "cohere_qk_norm": (CohereConfig, CohereForCausalLM, torch.bfloat16,
                       dict(head_dim=None, tie_word_embeddings=True, use_qk_norm=True, logit_scale=0.3, attention_bias=True)),
    "cohere2_rotated_windows": (Cohere2Config, Cohere2ForCausalLM, torch.bfloat16,
                                dict(head_dim=None, tie_word_embeddings=True, sliding_window=5, layer_types=MIXED)),
    "gemma2_capped": (Gemma2Config, Gemma2ForCausalLM, torch.bfloat16,
                      dict(tie_word_embeddings=True, sliding_window=5, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                           final_logit_softcapping=1.5)),
    "olmoe_experts": (OlmoeConfig, OlmoeForCausalLM, torch.bfloat16,
                      dict(head_dim=None, pad_token_id=0, tie_word_embeddings=True, num_experts=4, num_experts_per_tok=2,
                           intermediate_size=16)),
    # Sinks as large as other logits; gates and ups that pass their limit.
    "gpt_oss_sinks": (GptOssConfig, GptOssForCausalLM, torch.bfloat16,
                      dict(head_dim=8, pad_token_id=0, tie_word_embeddings=True, sliding_window=5, num_local_experts=4,
                           num_experts_per_tok=2, intermediate_size=16, swiglu_limit=0.75,
                           rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, truncate=False,
                                                original_max_position_embeddings=32))),
    "deepseek_v2_latent": (DeepseekV2Config, DeepseekV2ForCausalLM, torch.bfloat16,
                           LATENT | dict(q_lora_rank=NULL, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, n_group=2,
                                         topk_group=1, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
                                         rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0,
                                                              mscale=0.7, mscale_all_dim=0.5,
                                                              original_max_position_embeddings=32))),
    "deepseek_v3_latent": (DeepseekV3Config, DeepseekV3ForCausalLM, torch.bfloat16,
                           LATENT | dict(q_lora_rank=12, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4,
                                         topk_group=2, norm_topk_prob=True)),
    "gpt_neox_parallel": (GPTNeoXConfig, GPTNeoXForCausalLM, torch.float16, NEOX),
    "gpt_neox_serial": (GPTNeoXConfig, GPTNeoXForCausalLM, torch.bfloat16,
                        NEOX | dict(use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
                                    rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=4.0,
                                                         partial_rotary_factor=0.5))),
    "opt_learned_positions": (OPTConfig, OPTForCausalLM, torch.float16, OPT),
    # The norms of opt-350m, the activation of Galactica.
    "opt_norms_of_sums": (OPTConfig, OPTForCausalLM, torch.bfloat16,
                          OPT | dict(do_layer_norm_before=False, activation_function="gelu", enable_bias=False)),
    # Chunks of 12 of 40 tokens, a layer that sees everything, does not rotate and sharpens its queries, experts behind a dense layer.
    "llama4_chunks": (Llama4TextConfig, Llama4ForCausalLM, torch.bfloat16,
                      dict(tie_word_embeddings=True, no_rope_layers=[1, 0], attention_chunk_size=12, floor_scale=8, attn_scale=0.3,
                           intermediate_size=16, intermediate_size_mlp=24, num_local_experts=4, num_experts_per_tok=2,
                           interleave_moe_layer_step=2)),
}


def randomise(model, seed, dtype):
    """Every parameter from one seeded generator, so that a rerun writes the same checkpoint, and rounded to what will
    be stored. Parameters alone: casting the model would also round the rotary frequencies."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif ".experts." in name and model.config.model_type == "llama4_text":  # stored input by input
                parameter.copy_(1.1 / parameter.shape[-2] ** 0.5 * noise)
            elif "norm" in name:
                parameter.copy_((0 if model.config.model_type.startswith("gemma") else 1) + 0.2 * noise)  # Gemma adds the one
            elif name.endswith("sinks"):
                parameter.copy_(noise)
            else:
                parameter.copy_(1.1 / parameter.shape[-1] ** 0.5 * noise)
            parameter.copy_(parameter.to(dtype).to(torch.float32))
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):
                buffer.copy_((0.3 * torch.randn(buffer.shape, generator=generator)).to(dtype).to(torch.float32))


def absorbed(module, q, k, latent):
    """Queries [heads, T, d], keys and values [1, T, ...] of latent attention as it is cached: what multiplies the latent is moved to
    the queries, the part that rotates stands behind it, its pairs together."""
    plain = module.qk_nope_head_dim
    weight = module.kv_b_proj.weight.view(module.num_heads, -1, module.kv_lora_rank)[:, :plain]

    def rotated(rows):
        rows = rows[..., plain:]
        if "interleave" in inspect.getsource(type(module).forward):  # V3's pairs end up apart
            rows = rows.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        return rows

    return (torch.cat([torch.einsum("htp,hpr->htr", q[..., :plain], weight), rotated(q)], -1),
            torch.cat([latent[None], rotated(k[:1])], -1), latent[None])


def run(model, tokens):
    """All stages of one forward call, by name."""
    stages, unrotated, code = {}, [], sys.modules[type(model).__module__]
    rotation = next((name for name in ("apply_rotary_pos_emb_interleave", "apply_rotary_pos_emb", "apply_rotary_emb")
                     if hasattr(code, name)), "no rotation")
    originals = getattr(code, rotation, None), code.eager_attention_forward
    latents = {}

    def rotate(q, k, *args, **kwargs):
        keys = k[0]
        if model.config.model_type == "llama4_text":  # rows before heads, and a norm behind the rotation, which commutes with it
            keys = keys.transpose(0, 1) * (keys.transpose(0, 1).square().mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt()
        unrotated.append(keys.clone())
        return originals[0](q, k, *args, **kwargs)

    def attend(module, q, k, v, *args, **kwargs):
        # OPT scales queries itself.
        scale = module.scaling if kwargs["scaling"] == 1 else 1
        rows_of = q[0] / scale, k[0], v[0], unrotated.pop() if unrotated else k[0]
        if module in latents:
            rows_of = *absorbed(module, *rows_of[:2], latents[module]), torch.cat([latents[module][None], rows_of[3]], -1)
        for name, rows in zip(("q", "k", "v", "k_pre"), rows_of):
            stages[f"{name}.{module.layer_idx}"] = rows.clone()
        return originals[1](module, q, k, v, *args, **kwargs)

    setattr(code, rotation, rotate)
    code.eager_attention_forward = attend
    hooks = []
    base = model.base_model  # of Llama 4 the model itself
    for index, layer in enumerate(getattr(base, "decoder", getattr(base, "model", base)).layers):
        if hasattr(getattr(layer, "self_attn", None), "kv_a_layernorm"):
            hooks.append(layer.self_attn.kv_a_layernorm.register_forward_hook(
                lambda m, i, o, attention=layer.self_attn: latents.__setitem__(attention, o[0].clone())))
        hooks.append(layer.register_forward_hook(lambda m, i, o, name=f"out.{index}": stages.__setitem__(
            name, (o[0] if isinstance(o, tuple) else o).reshape(len(tokens), -1).clone())))
    with torch.no_grad():
        result = model(torch.tensor([tokens]), output_attentions=True, use_cache=False)
    for hook in hooks:
        hook.remove()
    setattr(code, rotation, originals[0])
    code.eager_attention_forward = originals[1]
    for layer, rows in enumerate(result.attentions):
        stages[f"rows.{layer}"] = rows[0, :, -LAST:]
    stages["logits"] = result.logits[0, -LAST:]
    return {name: stage.to(torch.float32).contiguous() for name, stage in sorted(stages.items())}


def write_config_as_transformers_4(folder):
    """Moves rope_parameters back to rope_theta and rope_scaling, as nearly all published files have them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    if scaling["rope_type"] == "linear":
        scaling["type"] = scaling.pop("rope_type")
    config["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    path.write_text(json.dumps(config, indent=2) + "\n")


def make(index, name):
    config_class, model_class, dtype, changes = VARIANTS[name]
    config = config_class(**{k: None if v == NULL else v for k, v in (SHAPE | changes).items() if v is not None})
    config._attn_implementation = "eager"
    model = model_class(config).to(torch.float32).eval()
    randomise(model, 1000 + index, dtype)

    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    stored = model_class(config).to(dtype)
    stored.load_state_dict(model.state_dict())
    stored.save_pretrained(folder, max_shard_size="40KB" if "sharded" in name else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in ("llama_rope_linear", "llama_rope_llama3", "llama_untied_f32"):
        write_config_as_transformers_4(folder)

    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(3, config.vocab_size, (TOKENS,), generator=generator).tolist()
    golden = run(model, tokens)
    narrow = run(model_class.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval(), tokens)
    for name, stage in list(golden.items()):
        golden["bf16." + name] = ((narrow[name] - stage).norm() / stage.norm()).reshape(1)
    golden["tokens"] = torch.tensor(tokens, dtype=torch.int32)
    save_file(golden, folder / "golden.safetensors",
              metadata={"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}"})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, variant in enumerate(VARIANTS):
        if len(sys.argv) == 1 or variant in sys.argv[1:]:
            make(i, variant)
            print(variant)
