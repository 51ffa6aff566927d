#!/usr/bin/env python3
"""Finds out which architectures of transformers the hook records: a tiny model with random weights of each runs through it.

    $(tools/python_env.sh) tools/python/try_architectures.py          # prints the table
    $(tools/python_env.sh) tools/python/try_architectures.py --paste  # and puts it into kvsim/hf/README.md

An architecture is recorded if the trace explains what the model did: softmax(scale * q k^T) v from the trace's tensors, with its
cap and sinks, is the input of every layer's output projection, to 1e-5. Otherwise the table has the hook's own message.
"""
import os
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import torch
import transformers

from kvsim.hf import TraceError, trace
from kvsim.hf.model_description import attention_modules, output_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "tools" / "python" / "kvsim" / "hf" / "README.md"
BEGIN, END = "<!-- try_architectures.py -->\n", "<!-- end -->\n"
TOLERANCE = 1e-5
TINY = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
FEW_EXPERTS = dict(num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                   n_group=1, topk_group=1)
LATENT = dict(num_key_value_heads=4, head_dim=4, kv_lora_rank=16, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4,
              v_head_dim=6)
NEEDS_EAGER = {"Gemma2", "GptOss", "GPTJ", "Bloom"}
# The class is FAMILYForCausalLM, its configuration FAMILYConfig (or as said), with these settings besides TINY.
FAMILIES = {
    "Llama": {}, "Mistral": {"sliding_window": 9}, "Mixtral": FEW_EXPERTS, "Ministral": {}, "Qwen2": {}, "Qwen2Moe": FEW_EXPERTS,
    "Qwen3": {}, "Qwen3Moe": FEW_EXPERTS, "Phi": {}, "Phi3": {}, "Gemma": {}, "Gemma2": {"sliding_window": 9}, "Gemma3": {},
    "Granite": {"attention_multiplier": 0.5}, "GraniteMoe": FEW_EXPERTS, "Olmo": {}, "Olmo2": {}, "Olmo3": {}, "Olmoe": FEW_EXPERTS,
    "Glm": {}, "Glm4": {}, "StableLm": {}, "Starcoder2": {"sliding_window": 6}, "Cohere": {}, "Cohere2": {}, "SmolLM3": {},
    "Nemotron": {}, "Helium": {}, "Arcee": {}, "Exaone4": {}, "Ernie4_5": {}, "SeedOss": {}, "HunYuanDenseV1": {}, "Apertus": {},
    "Persimmon": {"num_key_value_heads": 4}, "GPTNeoX": {"num_key_value_heads": 4}, "GPTJ": {}, "OPT": {}, "Bloom": {},
    "GptOss": FEW_EXPERTS, "DeepseekV2": FEW_EXPERTS | LATENT,
    "DeepseekV3": FEW_EXPERTS | LATENT, "Llama4": {}}


def tiny(family, kind=None, **changes):
    """A model with random weights."""
    torch.manual_seed(0)
    text = "Text" if family in ("Gemma3", "Llama4") else ""
    config = getattr(transformers, f"{family}{text}Config")(**TINY | FAMILIES.get(family, {}) | changes)
    config._attn_implementation = kind or ("eager" if family in NEEDS_EAGER else "sdpa")
    return getattr(transformers, family + "ForCausalLM")(config).eval()


def traced_call(model, path):
    """Writes the trace of one call; returns the inputs of the output projections, by layer."""
    inputs, hooks = [], []
    try:
        with trace(model, path, overwrite=True), torch.no_grad():
            for module in attention_modules(model.get_decoder()):
                hooks.append(output_of(module).register_forward_pre_hook(lambda _, x: inputs.append(x[0][0].clone())))
            model(torch.arange(3, 40)[None])
    finally:
        for hook in hooks:
            hook.remove()
    return [each.double().numpy() for each in inputs]


def attended(file, layer, module=None):
    """Attention from a trace's tensors alone: [tokens, query heads * value dimension]. Latents are expanded by the `module`."""
    about, window = file["model"].attrs, file["model/layer_window"][layer]
    q, k = (file[f"layers/{layer:04d}/{name}"][...].astype(np.float64) for name in "qk")
    latent = file.attrs.get("needs", 0) & 4
    v = k[..., :about["v_head_dim"]] if latent else file[f"layers/{layer:04d}/v"][...].astype(np.float64)
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) * about["attn_scale"]
    if about["logit_softcap"] > 0:
        scores = about["logit_softcap"] * np.tanh(scores / about["logit_softcap"])
    row, column = np.indices(scores.shape[1:])
    scores[:, (column > row) | ((window > 0) & (column <= row - window))] = -np.inf
    sinks = file["model/sinks"][layer][:, None, None] if "sinks" in file["model"] else -np.inf
    largest = np.maximum(scores.max(-1, keepdims=True), sinks)
    weights = np.exp(scores - largest)
    outputs = weights / (weights.sum(-1, keepdims=True) + np.exp(sinks - largest)) @ v
    if latent:
        expand = module.kv_b_proj.weight.detach().double().numpy().reshape(len(q), -1, v.shape[-1])[:, module.qk_nope_head_dim:]
        outputs = outputs @ expand.transpose(0, 2, 1)
    return np.concatenate(outputs, axis=-1)


def outcome(family, folder):
    """"recorded", or why not."""
    path = os.path.join(folder, "tiny.h5")
    try:
        model = tiny(family)
        given = traced_call(model, path)
    except TraceError as error:
        return "refused: " + str(error).splitlines()[0].removeprefix(f"{family}ForCausalLM: ")
    with h5py.File(path) as file:
        modules = attention_modules(model.get_decoder())
        worst = max(np.abs(attended(file, layer, modules[layer]) - given[layer]).max() for layer in range(len(given)))
    if worst > TOLERANCE:
        raise SystemExit(f"{family}: recorded, but its trace is {worst:.1e} off: the hook must refuse it")
    return "recorded"


def table(folder):
    """A row for each outcome, with the families (FAMILYForCausalLM) that have it."""
    rows = {}
    for family in FAMILIES:
        rows.setdefault(outcome(family, folder), []).append(family)
    return "| what the hook does | architectures |\n|---|---|\n" + "".join(f"| {said} | {', '.join(rows[said])} |\n" for said in rows)


def main(arguments):
    if not set(arguments) <= {"--paste"}:
        print(__doc__, file=sys.stderr)
        return 2
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        shown = table(folder)
    print(shown, end="")
    if arguments:
        before, rest = README.read_text().split(BEGIN)
        README.write_text(before + BEGIN + shown + END + rest.split(END, 1)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
