#!/usr/bin/env python3
"""Finds out which architectures of transformers the hook records, and which kvsim.hf.evaluate runs: a tiny model with random
weights of each goes through them.

    PYTHONPATH=SITE $(tools/python_env.sh) -P tools/python/try_architectures.py          # prints the tables
    PYTHONPATH=SITE $(tools/python_env.sh) -P tools/python/try_architectures.py --paste  # and puts them into kvsim/hf/README.md

SITE has the wheel of this commit (pip install --target SITE), whose compiled half decides what caches hold.

An architecture is recorded if the trace explains what the model did: softmax(scale * q k^T) v from the trace's tensors, with its
cap and sinks, is the input of every layer's output projection, to 1e-5. It answers if evaluate skips no policy, and the full cache
generates what transformers' own does. Otherwise the tables have the message.
"""
import os
import pathlib
import sys
import tempfile
import warnings

import h5py
import numpy as np
import torch
import transformers

from kvsim.hf import TraceError, trace
from kvsim.hf.model_description import attention_modules, decoder_of, output_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "traces" / "sample" / "model" / "tokenizer.json"
ITEM = {"prompt": "The code of the red safe is 4721. The code of the blue safe is 9052. The code of the red safe is", "answer": " 4721"}
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
    "Persimmon": {"num_key_value_heads": 4}, "GPTNeoX": {"num_key_value_heads": 4}, "GPTJ": {}, "OPT": {"num_key_value_heads": 4}, "Bloom": {},
    "GptOss": FEW_EXPERTS, "DeepseekV2": FEW_EXPERTS | LATENT,
    "DeepseekV3": FEW_EXPERTS | LATENT, "Llama4": FEW_EXPERTS | dict(attention_chunk_size=9, floor_scale=8)}


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
            for module in attention_modules(decoder_of(model)):
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
    hidden = column > row
    if window > 0:
        hidden |= column < (row - row % window if file.attrs.get("needs", 0) & 8 else row - window + 1)
    scores[:, hidden] = -np.inf
    sinks = file["model/sinks"][layer][:, None, None] if "sinks" in file["model"] else -np.inf
    largest = np.maximum(scores.max(-1, keepdims=True), sinks)
    weights = np.exp(scores - largest)
    outputs = weights / (weights.sum(-1, keepdims=True) + np.exp(sinks - largest)) @ v
    if latent:
        expand = module.kv_b_proj.weight.detach().double().numpy().reshape(len(q), -1, v.shape[-1])[:, module.qk_nope_head_dim:]
        outputs = outputs @ expand.transpose(0, 2, 1)
    return np.concatenate(outputs, axis=-1)


def refusal(family, error):
    return "refused: " + str(error).splitlines()[0].removeprefix(f"{family}ForCausalLM: ")


def answering(family):
    """What kvsim.hf.evaluate does with a family: "answers", or why not. Needs the compiled half of kvsim."""
    import kvsim.hf

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER))
    model = tiny(family, vocab_size=len(tokenizer))
    try:
        answers = kvsim.hf.evaluate(model, tokenizer, [ITEM], ["full", "tova", "h2o"], [0.5], max_new_tokens=4)
    except TraceError as error:
        return refusal(family, error)
    skipped = [said for said in answers["skipped"] if said]
    ids = tokenizer(ITEM["prompt"], return_tensors="pt")["input_ids"]
    plain, held = (model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, **cache).tolist()
                   for cache in ({}, {"past_key_values": kvsim.hf.Cache(model, "full", 1.0)}))
    if skipped or plain != held:
        raise SystemExit(f"{family}: evaluate must refuse it: {skipped or 'its full cache generates something else'}")
    return "answers"


def outcome(family, folder):
    """"recorded", or why not."""
    path = os.path.join(folder, "tiny.h5")
    try:
        model = tiny(family)
        given = traced_call(model, path)
    except TraceError as error:
        return refusal(family, error)
    with h5py.File(path) as file:
        modules = attention_modules(decoder_of(model))
        worst = max(np.abs(attended(file, layer, modules[layer]) - given[layer]).max() for layer in range(len(given)))
    if worst > TOLERANCE:
        raise SystemExit(f"{family}: recorded, but its trace is {worst:.1e} off: the hook must refuse it")
    return "recorded"


def table(title, outcome_of):
    """A row for each outcome, with the families (FAMILYForCausalLM) that have it."""
    rows = {}
    for family in FAMILIES:
        rows.setdefault(outcome_of(family), []).append(family)
    return f"| {title} | architectures |\n|---|---|\n" + "".join(f"| {said} | {', '.join(rows[said])} |\n" for said in rows)


def main(arguments):
    if not set(arguments) <= {"--paste"}:
        print(__doc__, file=sys.stderr)
        return 2
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")  # a tiny model answers nothing right
    with tempfile.TemporaryDirectory() as folder:
        shown = table("what the hook does", lambda family: outcome(family, folder)) + "\n" + \
            table("what evaluate does", answering)
    print(shown, end="")
    if arguments:
        before, rest = README.read_text().split(BEGIN)
        README.write_text(before + BEGIN + shown + END + rest.split(END, 1)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
