"""Writes checkpoints of tests/golden/capture as GGUF files, in families/, with the names and keys of PyPI's package gguf and the
conventions of llama.cpp's converter; and beside each the config.json that the file amounts to, which differs from the checkpoint's
where a file cannot say something. To make it again:

    python -m pip install gguf==0.19.0 numpy torch safetensors && python tests/golden/gguf/make_families.py
"""
import json
import math
import pathlib

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, MODEL_ARCH_NAMES, get_tensor_name_map
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
CAPTURE = HERE.parent / "capture"
TYPES = {torch.float32: GGMLQuantizationType.F32, torch.float16: GGMLQuantizationType.F16, torch.bfloat16: GGMLQuantizationType.BF16}
# The architecture, and the fields of config.json that its files cannot say.
FAMILIES = {
    "cohere_qk_norm": ("command-r", {}),
    "cohere2_rotated_windows": ("cohere2", {"layer_types": ["sliding_attention"] * 2}),
    "deepseek_v2_latent": ("deepseek2", {}),
    "deepseek_v3_latent": ("deepseek2", {}),
    "exaone4_rotated_windows": ("exaone4", {}),
    "gemma_scaled_embedding": ("gemma", {}),
    "gemma2_capped": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3_two_rotations": ("gemma3", {"query_pre_attn_scalar": 16, "layer_types": ["sliding_attention"] * 2}),
    "glm4_four_norms": ("glm4", {}),
    "glm_interleaved": ("chatglm", {}),
    "gpt_neox_parallel": ("gptneox", {}),
    "gpt_neox_serial": ("gptneox", {}),
    "gpt_oss_sinks": ("gpt-oss", {"swiglu_limit": 7.0}),
    "granite_multipliers": ("granite", {}),
    # The last of four layers sees everything.
    "llama4_chunks": ("llama4", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "moe_layers": [1, 3],
                                 "layer_types": ["chunked_attention"] * 3 + ["full_attention"], "attention_chunk_size": 8192,
                                 "floor_scale": 8192, "attn_scale": 0.1}),
    "mixtral_experts": ("llama", {}),
    "olmo2_norms_behind": ("olmo2", {}),
    "olmo3_yarn_in_full_layers": ("olmo2", {}),
    "olmoe_experts": ("olmoe", {}),
    "qwen2_moe_shared": ("qwen2moe", {}),
    "qwen3_moe_experts": ("qwen3moe", {}),
    "smollm3_unrotated_layer": ("smollm3", {"no_rope_layers": [1, 1]}),
}
INTERLEAVED = "llama", "granite", "smollm3"


def interleave(rows, heads):
    """A rotating pair of components side by side."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def metadata(writer, arch, config):
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config.get("intermediate_size_mlp", config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_vocab_size(config["vocab_size"])
    if arch in ("cohere2", "command-r", "gptneox"):
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if arch == "gptneox":  # its files leave out what follows from these two
        writer.add_rope_dimension_count(int(dim * rope["partial_rotary_factor"]))
        writer.add_parallel_residual(config["use_parallel_residual"])
    elif arch != "deepseek2":
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(dim)
        writer.add_value_length(dim)
        writer.add_rope_dimension_count(int(dim * rope.get("partial_rotary_factor", 1)))
    if "full_attention" in rope:
        rope, of_windows = rope["full_attention"], rope["sliding_attention"]
        if arch == "gemma3":
            writer.add_rope_freq_base_swa(of_windows["rope_theta"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] != "default":
        writer.add_rope_scaling_type(type("Scaling", (), {"value": rope["rope_type"]}))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    if config["model_type"] == "olmo3":  # whose published configuration says it
        writer.add_rope_scaling_yarn_attn_factor(1 + 0.1 * math.log(rope["factor"]))
    if arch in ("cohere2", "exaone4", "gemma2", "gemma3", "gpt-oss") or config["model_type"] == "olmo3":
        writer.add_sliding_window(config["sliding_window"])
    if arch == "exaone4" or config["model_type"] == "olmo3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if arch in ("cohere2", "command-r"):
        writer.add_logit_scale(config["logit_scale"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    experts = next((config[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if key in config), 0)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if width := config.get("moe_intermediate_size", config["intermediate_size"] if arch in ("gpt-oss", "llama4") else 0):
            writer.add_expert_feed_forward_length(width)
    if arch == "llama4":
        writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if arch == "deepseek2":
        latent(writer, config, rope)


def latent(writer, config, rope):
    third = config["model_type"] == "deepseek_v3"
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    whole = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    if third:  # one matrix for all heads
        writer.add_head_count_kv(config["num_attention_heads"])
        writer.add_key_length(whole)
        writer.add_value_length(config["v_head_dim"])
    else:  # absorbed
        writer.add_head_count_kv(1)
        writer.add_key_length(config["kv_lora_rank"] + config["qk_rope_head_dim"])
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(whole)
        writer.add_value_length_mla(config["v_head_dim"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_gating_func(type("Gating", (), {"value": 2 if third else 1}))
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def tensors(arch, config, checkpoint):
    """What the converter makes of a checkpoint's tensors before it names them."""
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads")
    stacks = {}
    for name, tensor in checkpoint.items():
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            tensor = (tensor.float() + 1).contiguous()
        if arch in INTERLEAVED and (".q_proj." in name or ".k_proj." in name):
            tensor = interleave(tensor, heads if ".q_proj." in name else kv_heads)
        if ".query_key_value." in name:  # each head's queries, keys and values stand together
            tensor = tensor.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2).contiguous()
        if name.endswith("shared_expert_gate.weight"):
            tensor = tensor[0]
        if arch == "chatglm" and (".k_proj." in name or ".v_proj." in name):
            continue
        if arch == "chatglm" and ".q_proj." in name:  # as in the original checkpoints, the three are one
            yield name.replace("q_proj", "qkv_proj"), torch.cat([checkpoint[name.replace("q_proj", part + "_proj")] for part in "qkv"])
            continue
        if ".experts." in name and name.split(".experts.")[1][0].isdigit():
            before, after = name.split(".experts.")
            number, part = after.split(".", 1)
            stacks.setdefault(f"{before}.experts.{part}", {})[int(number)] = tensor
        elif arch == "llama4" and ".experts." in name:  # stored input by input, all gates before all ups
            rows = tensor.transpose(-1, -2)
            if "gate_up_proj" in name:
                for half, part in zip(rows.chunk(2, dim=1), ("gate_proj", "up_proj")):
                    yield name.replace("gate_up_proj", part) + ".weight", half
            else:
                yield name + ".weight", rows
        elif arch == "gpt-oss" and ".experts." in name:
            gate_up = "gate_up_proj" in name
            bias = name.endswith("_bias")
            rows = tensor if bias else tensor.transpose(-1, -2)
            base, ending = name.removesuffix("_bias"), ".bias" if bias else ".weight"
            if gate_up:
                yield base.replace("gate_up_proj", "gate_proj") + ending, rows[:, 0::2]
                yield base.replace("gate_up_proj", "up_proj") + ending, rows[:, 1::2]
            else:
                yield base + ending, rows
        elif name.endswith("kv_b_proj.weight") and config["model_type"] == "deepseek_v2":
            both = tensor.unflatten(0, (heads, -1))
            plain = config["qk_nope_head_dim"]
            yield name.replace("kv_b_proj", "k_b_proj"), both[:, :plain].transpose(1, 2)
            yield name.replace("kv_b_proj", "v_b_proj"), both[:, plain:]
        else:
            yield name, tensor
    for name, parts in stacks.items():
        yield name, torch.stack([parts[i] for i in range(len(parts))])


def make(name):
    arch, changes = FAMILIES[name]
    config = json.loads((CAPTURE / name / "config.json").read_text())
    checkpoint = load_file(CAPTURE / name / "model.safetensors")
    if arch == "qwen2moe":  # its files have experts in every layer, so that the first one is the second again
        changes = {"decoder_sparse_step": 1}
        checkpoint = {key: value for key, value in checkpoint.items() if ".layers.0." not in key}
        checkpoint |= {key.replace(".layers.1.", ".layers.0."): value for key, value in checkpoint.items()}
    if arch == "llama4":  # two times the two layers
        checkpoint |= {key.replace(f".layers.{layer}.", f".layers.{layer + 2}."): value
                       for key, value in checkpoint.items() for layer in (0, 1) if f".layers.{layer}." in key}
    if arch == "deepseek2" and config["model_type"] == "deepseek_v2":
        changes = {"rope_parameters": config["rope_parameters"] | {"mscale": config["rope_parameters"]["mscale_all_dim"]}}
    config |= changes
    writer = GGUFWriter(HERE / "families" / f"{name}.gguf", arch)
    metadata(writer, arch, config)
    writer.add_eos_token_id(config["eos_token_id"])
    names = get_tensor_name_map(next(key for key, value in MODEL_ARCH_NAMES.items() if value == arch), config["num_hidden_layers"])
    for theirs, tensor in tensors(arch, config, checkpoint):
        theirs = theirs.replace("e_score_correction_bias", "e_score_correction.bias")
        known = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise SystemExit(f"{name}: the package does not know {theirs}")
        if theirs.endswith("self_attn.sinks"):
            known += ".weight"
        tensor = tensor.contiguous()
        raw = tensor.view(torch.int16).numpy().view(np.uint8) if tensor.dtype != torch.float32 else tensor.numpy()
        writer.add_tensor(known, raw, raw_dtype=TYPES[tensor.dtype] if tensor.dtype != torch.float32 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (HERE / "families" / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    (HERE / "families").mkdir(exist_ok=True)
    for family in FAMILIES:
        make(family)
        print(family)
