#!/usr/bin/env python3
"""Whether a cache in llama.cpp's types answers in kvsim as it does in llama.cpp, and llama_cache.json, llama.cpp's answers for a test that
runs without it. Beside CI, because llama.cpp is compiled for 8 minutes:

    python3 -m venv build/llama && build/llama/bin/pip install llama-cpp-python==0.3.36 h5py xxhash gguf
    build/llama/bin/python tests/golden/engines/record_llama_cache.py build/release/kvsim [--only-recording]

Prompts of needles and passkeys, flash attention on a processor, greedy answers of 16 tokens through a cache of f16, which are then forced
on each cache. A row is of a cache (-ctk, -ctv), `rotate`: yes as llama.cpp does by itself, no with LLAMA_ATTN_ROT_DISABLE=1. Numbers are
roots of mean squares of differences of log-probabilities: `moved`, how far the cache moves llama.cpp's from those of f32 without flash
attention; then how far kvsim's, through full+llama_cpp(keys=,values=,rotate=), are from llama.cpp's.

The first layer alone as EXAONE's, whose heads llama.cpp leaves in their order: codes of what is the same to the last bits. kvsim's numbers
are 0.00005 from llama.cpp's with keys of f16 and 0.0013 with coded keys, whatever the types, where q4_0 moves 0.1 and q8_0 0.005. With the
other `rotate` they are 0.007 to 0.13 from them. What is left are queries, which kvsim has as they are: llama.cpp's are of f16 for keys of
f16, and of q8_0 for coded keys (ggml's kernels for processors; others differ).

Whole models differ by more, by what was read and by order, not by code:
- llama.cpp's prompt reads its own cache. kvsim evaluate reads the prompt as it is and codes it then; --cut 1 feeds all behind the first
  token through the cache. The first token's own keys and values remain: they come from a pass without codes.
- llama.cpp has the heads of Llama's kin (Llama, Mistral, SmolLM; not Qwen, Gemma, Phi) in the order of its GGUF files, in which numbers
  that rotate together are neighbours; kvsim puts them back. Codes of keys are then of other blocks and, with `rotate`, of other sums.
  What a code of 4 bits costs is the same with `rotate`; without, 1.4 times as much in llama.cpp's order (KL of keys in q4_0, the sample).
- Small differences become a code's step where they are coded again.
"NumPy" is a model here that does all of this as llama.cpp does, queries in 8 bits included. "Token 0 empty" has a first token without keys
and values, and GLM's order, which is llama.cpp's.

The sample, keys and values in q4_0: moved 0.100; kvsim is 0.093 from it with --cut prompt, 0.075 with --cut 1, NumPy 0.010. Keys of f16,
values in q4_0: moved 0.083; 0.066, 0.035, 0.001. Token 0 empty: moved 0.080, kvsim 0.023, and 0.074, 0.005. Greedy answers are
llama.cpp's in all 102 that the test compares; 13 of these are not what a cache of f16 answers.

SmolLM2-135M in F32, 4 prompts: q8_0 moved 0.011, kvsim 0.012 from it with --cut prompt, 0.011 with --cut 1; values alone in q4_0 0.071,
0.049, 0.048; keys, too, 0.239, 0.243, 0.255. Token 0 empty, --cut 1: q8_0 0.010, 0.012, NumPy 0.018; values in q4_0 0.079, 0.050, 0.054;
keys, too, 0.214, 0.169, 0.133. Nothing can be nearer token by token: 30 layers make a code's step of any last bit. In NumPy, weights that
differ in their last bits alone move the same by 0.000003 without codes, by 0.041 with values in q4_0 and by 0.24 with keys, too (one
prompt, tried once)."""
import csv
import ctypes
import datetime
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys

import gguf
import h5py
import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
SAMPLE = SOURCE / "traces/sample/model"
sys.path[:0] = [str(SOURCE / "tools/python"), str(SOURCE / "tests/support")]
import llama_order  # noqa: E402 - after the path to it
import small_gguf  # noqa: E402
from kvsim.llama_cpp.loaded_model import LoadedModel  # noqa: E402

TOKENS = 16  # of an answer
PROMPTS = ("needle-multi-key", 300, 2), ("passkey", 300, 1), ("needle-multi-key", 500, 1), ("passkey", 500, 1)
PLAIN = [("f32", "f32", True), ("f16", "f16", True)]
PAIRS = ("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0"), ("f16", "q4_0"), ("q4_0", "q4_0"), ("q5_1", "f16"), ("q5_0", "q4_1"), \
    ("q4_1", "q5_0")
EACH_WAY = [*PLAIN, *((*pair, rotate) for rotate in (True, False) for pair in PAIRS)]
FEW = [*PLAIN, *((*pair, rotate) for rotate in (True, False) for pair in (("q8_0", "f16"), ("f16", "q4_0"), ("q4_0", "q4_0")))]
AS_IT_IS = [*PLAIN, *((*pair, True) for pair in (("q8_0", "q8_0"), ("f16", "q4_0"), ("q4_0", "q4_0")))]


def prompts(kvsim, model, folder, kinds):
    """Token ids of the prompts of workloads."""
    found = []
    for kind, context, count in kinds:
        texts = folder / "prompts.jsonl"
        subprocess.run([kvsim, "workload", kind, "--context", str(context), "--count", str(count), "--seed", "1", "--tokenizer", model,
                        "-o", texts, "--overwrite"], check=True)
        for line in texts.read_text().splitlines():
            subprocess.run([kvsim, "capture", "--model", model, "--workload", texts, "--item", json.loads(line)["id"], "--max-new-tokens",
                            "1", "-o", folder / "prompt.h5", "--overwrite", "--quiet"], check=True, capture_output=True)
            with h5py.File(folder / "prompt.h5") as trace:
                found.append(trace["tokens/id"][:int(trace["segments/count"][0])].tolist())
    return found


def engine(file, prompt, keys, values, rotate, given=None):
    """The tokens of llama.cpp's answer through a cache of two types, the likeliest unless they are given, with their log-probabilities.
    `rotate`: as it does by itself. Caches of f32 go without flash attention, which would make f16 of them."""
    os.environ["LLAMA_ATTN_ROT_DISABLE"] = str(int(not rotate))
    nobody = llama_cpp.ggml_backend_sched_eval_callback(lambda *_: False)
    tokens, chances = [], []
    with LoadedModel(file) as loaded:
        loaded.open_context(len(prompt) + TOKENS, 512, (keys, values), keys != "f32", 1, nobody)
        for first in range(0, len(prompt), 512):
            logits = loaded.run(prompt[first:first + 512])
        while len(tokens) < TOKENS:
            if tokens:
                logits = loaded.run(tokens[-1:])
            tokens.append(int(logits.argmax()) if given is None else given[len(tokens)])
            logits = logits.astype("f8") - logits.max()
            chances.append(float(logits[tokens[-1]] - np.log(np.exp(logits).sum())))
    return tokens, chances


def named(keys, values, rotate):
    return "full" if keys == "f32" else f"full+llama_cpp(keys={keys},values={values},rotate={str(rotate).lower()})"


def evaluated(kvsim, model, folder, prompt, answer, caches, cut):
    """Log-probabilities that kvsim evaluate gives the tokens of an answer, per cache."""
    for name, ids in (("prompt", prompt), ("answer", answer)):
        (folder / f"{name}.json").write_text(json.dumps(ids))
    subprocess.run([kvsim, "capture", "--model", model, "--tokens", folder / "prompt.json", "--answer-tokens", folder / "answer.json",
                    "--ignore-eos", "--elem", "f32", "-o", folder / "run.h5", "--overwrite", "--quiet"], check=True, capture_output=True)
    asked = [part for cache in caches for part in ("--policy", named(*cache))]
    text = subprocess.run([kvsim, "evaluate", "--model", model, "--trace", folder / "run.h5", *asked, "--budget", "100%", "--cut", cut,
                           "--elem", "f32", "--mode", "teacher", "--per", "token", "--format", "csv", "--quiet"], check=True,
                          capture_output=True, text=True).stdout
    chances = [float(row["log_p"]) for row in csv.DictReader(io.StringIO(text))]
    return np.reshape(chances, (len(caches), len(answer)))


def apart(mine, their):
    return float(np.sqrt(np.mean(np.square(np.subtract(mine, their)))))


def compare(kvsim, name, file, folder, asked, caches, ways, reference=None):
    """Prints a row per cache, the first of which is of f32: how far it moves llama.cpp's log-probabilities from those through the first,
    and how far those of kvsim are from them. ways: [(label, model, cut)]. Returns llama.cpp's numbers."""
    given = [engine(file, prompt, "f16", "f16", True)[0] for prompt in asked]
    theirs = [[engine(file, prompt, *cache, given=answer)[1] for prompt, answer in zip(asked, given)] for cache in caches]
    ours = {label: np.stack([evaluated(kvsim, model, folder, prompt, answer, caches, cut) for prompt, answer in zip(asked, given)], 1)
            for label, model, cut in ways}
    columns = [*ours, *(["NumPy, queries in 8 bits"] if reference else [])]
    print(f"\n{name}: {len(asked)} prompts of {min(map(len, asked))} to {max(map(len, asked))} tokens\n\n"
          f"| keys | values | rotate | moved | {' | '.join(columns)} |\n|{'---|' * (4 + len(columns))}")
    for index, cache in enumerate(caches):
        found = [ours[label][index] for label in ours]
        if reference:
            found.append([reference.chances(prompt, answer, *cache) for prompt, answer in zip(asked, given)])
        print(f"| {cache[0]} | {cache[1]} | {'yes' if cache[2] else 'no'} | {apart(theirs[index], theirs[0]):.5f} | "
              + " | ".join(f"{apart(of, theirs[index]):.5f}" for of in found) + " |", flush=True)
    return {"prompts": asked, "given": given, "caches": [
        {"keys": keys, "values": values, "rotate": rotate, "log_p": np.round(chances, 5).tolist()}
        for (keys, values, rotate), chances in zip(caches, theirs)]}


def record(kvsim, name, file, folder, asked, caches, *ways):
    """The same, with llama.cpp's own answers."""
    found = compare(kvsim, name, file, folder, asked, caches, *ways)
    for cache, of in zip(caches, found["caches"]):
        of["answers"] = [engine(file, prompt, *cache)[0] for prompt in asked]
    return found


# llama.cpp's arithmetic in NumPy.


def coded(rows, kind):
    """Rows as a cache of a type holds them."""
    if kind in ("f32", "f16"):
        return rows.astype("f2").astype("f4") if kind == "f16" else rows
    blocks = rows.reshape(-1, 32).astype("f4")
    bits, least = int(kind[1]), kind.endswith("_1")
    if kind == "q8_0":
        scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    elif least:
        scale = (blocks.max(1, keepdims=True) - blocks.min(1, keepdims=True)) / np.float32(2 ** bits - 1)
    else:
        scale = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1) / np.float32(-2 ** (bits - 1))
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    stored = scale.astype("f2").astype("f4")
    if kind == "q8_0":
        out = np.rint(blocks * inverse) * stored
    elif least:
        low = blocks.min(1, keepdims=True)
        out = np.minimum(2 ** bits - 1, np.floor((blocks - low) * inverse + np.float32(.5))) * stored + low.astype("f2").astype("f4")
    else:
        half = 2 ** (bits - 1)
        out = (np.minimum(2 * half - 1, np.floor(blocks * inverse + np.float32(half + .5))) - half) * stored
    return out.reshape(rows.shape)


def hadamard(n):
    out = np.ones((1, 1))
    while len(out) < n:
        out = np.block([[out, out], [out, -out]])
    return (out / np.sqrt(n)).astype("f4")


class Model:
    """A Llama whose heads have 64 numbers, in llama.cpp's order. It codes queries for coded keys in q8_0, as llama.cpp's kernels for
    processors do."""

    def __init__(self, config, ordered):
        self.config, self.tensors = config, ordered

    def chances(self, prompt, answer, keys, values, rotate):
        """Log-probabilities of the answer."""
        logits = self._run([*prompt, *answer[:-1]], keys, values, rotate)[len(prompt) - 1:].astype("f8")
        logits -= logits.max(1, keepdims=True)
        return logits[range(len(answer)), answer] - np.log(np.exp(logits).sum(1))

    def _run(self, tokens, keys, values, rotate):
        of, n = self.tensors, len(tokens)
        heads, lanes, dim = (self.config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        angles = np.outer(np.arange(n), self.config["rope_theta"] ** (-np.arange(0, dim, 2) / dim))
        turn = np.exp(1j * angles)[:, None].astype("c8")

        def normal(x, name):
            return x / np.sqrt((x * x).mean(1, keepdims=True) + self.config["rms_norm_eps"]) * of[name + ".weight"]

        def rotary(rows):
            return (np.ascontiguousarray(rows).view("c8") * turn).view("f4")

        def store(rows, kind, with_blocks):
            turn_back = hadamard(64) if rotate and with_blocks else np.eye(64, dtype="f4")
            return coded(rows @ turn_back, kind) @ turn_back

        x = of["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            h = normal(x, name + "input_layernorm")
            q, k, v = ((h @ of[f"{name}self_attn.{part}_proj.weight"].T).reshape(n, -1, dim) for part in "qkv")
            q, k = rotary(q), rotary(k)
            q = store(q, "q8_0" if keys[0] == "q" else keys, keys[0] == "q")
            k, v = store(k, keys, keys[0] == "q"), store(v, values, values[0] == "q")
            scores = np.einsum("tlgd,sld->lgts", q.reshape(n, lanes, heads // lanes, dim), k) / dim ** 0.5
            scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            x = x + np.einsum("lgts,sld->tlgd", weights, v).reshape(n, -1) @ of[name + "self_attn.o_proj.weight"].T
            h = normal(x, name + "post_attention_layernorm")
            gate = h @ of[name + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ of[name + "mlp.up_proj.weight"].T)) @ of[name + "mlp.down_proj.weight"].T
        return normal(x, "model.norm") @ of["model.embed_tokens.weight"].T


def gguf_tensors(file):
    """config.json and tensors, in llama.cpp's order, of a Llama's GGUF file in F32."""
    with LoadedModel(file) as loaded:
        said = {key.removeprefix("llama."): value for key, value in loaded.metadata().items()}
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    tensors = {}
    for tensor in gguf.GGUFReader(file).tensors:
        name = tensor.name.replace("blk.", "model.layers.")
        for theirs, ours in [*names.items(), *((theirs, ours) for ours, theirs in small_gguf.PARTS.items())]:
            name = name.replace(f"{theirs}.weight", f"{ours}.weight")
        tensors[name] = np.array(tensor.data)
    heads, width = int(said["attention.head_count"]), int(said["embedding_length"])
    return {"num_hidden_layers": int(said["block_count"]), "hidden_size": width, "intermediate_size": int(said["feed_forward_length"]),
            "num_attention_heads": heads, "num_key_value_heads": int(said["attention.head_count_kv"]), "head_dim": width // heads,
            "rms_norm_eps": float(said["attention.layer_norm_rms_epsilon"]), "rope_theta": float(said["rope.freq_base"]),
            "vocab_size": len(tensors["model.embed_tokens.weight"]), "max_position_embeddings": int(said["context_length"]),
            "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "float32"}, tensors


def smollm2(kvsim, folder):
    base = subprocess.run([SOURCE / "tools/model.sh"], capture_output=True, text=True, check=True).stdout.strip()
    file, empty = folder / "smollm2-F32.gguf", folder / "smollm2-F32-empty.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = 0, True
    if llama_cpp.llama_model_quantize(base.encode(), str(file).encode(), ctypes.byref(params)):
        sys.exit(f"{file}: llama.cpp cannot make it")
    asked = prompts(kvsim, base, folder, PROMPTS[:3])
    compare(kvsim, "SmolLM2-135M-Instruct", file, folder, asked, AS_IT_IS, [("cut prompt", file, "prompt"), ("cut 1", file, "1")])
    config, ordered = gguf_tensors(file)
    ordered = llama_order.without_first(ordered)
    copy = llama_order.write_glm(config, ordered, folder / "smollm2-glm", SAMPLE / "tokenizer.json")
    shutil.copy(file, empty)
    with open(empty, "r+b") as opened:
        place = next(int(tensor.data_offset) for tensor in gguf.GGUFReader(file).tensors if tensor.name == "token_embd.weight")
        opened.seek(place)
        opened.write(bytes(4 * config["hidden_size"]))
    compare(kvsim, "SmolLM2, token 0 empty", empty, folder, [[0, *prompt] for prompt in asked], AS_IT_IS,
            [("cut 1, llama.cpp's order", copy, "1")], Model(config, ordered))
    for made in (file, empty):
        made.unlink()
    shutil.rmtree(copy)


def main():
    kvsim, folder = pathlib.Path(sys.argv[1]).resolve(), SOURCE / "build/engines"
    folder.mkdir(parents=True, exist_ok=True)
    config, tensors = small_gguf.checkpoint(SAMPLE)
    asked = prompts(kvsim, SAMPLE, folder, PROMPTS)

    def made(name, *parts):
        (folder / f"{name}.gguf").write_bytes(small_gguf.llama(*parts[:2], {"tokenizer.ggml.model": "no_vocab"}, *parts[2:]))
        return folder / f"{name}.gguf"

    def reference(config, tensors):
        return Model(config, small_gguf.side_by_side(config, tensors))

    whole = [("cut prompt", SAMPLE, "prompt"), ("cut 1", SAMPLE, "1")]
    compare(kvsim, "The sample", made("whole", config, tensors), folder, asked, EACH_WAY, whole, reference(config, tensors))
    one = {**config, "num_hidden_layers": 1}, {name: of for name, of in tensors.items() if ".layers." not in name or ".layers.0." in name}
    found = {"llama-cpp-python": llama_cpp.__version__, "recorded": str(datetime.date.today())}
    copy = llama_order.write_plain(*one, folder / "one", SAMPLE / "tokenizer.json")
    found["one layer"] = record(kvsim, "Its first layer as EXAONE's", made("one", *one, "exaone"), folder, asked, EACH_WAY,
                                 [("cut prompt", copy, "prompt"), ("cut 1", copy, "1")])
    empty = llama_order.without_first(tensors)
    copy = llama_order.write_glm(config, small_gguf.side_by_side(config, empty), folder / "glm", SAMPLE / "tokenizer.json")
    found["token 0 empty"] = record(kvsim, "Token 0 empty, in llama.cpp's order", made("empty", config, empty), folder,
                                     [[0, *prompt] for prompt in asked[:3]], FEW, [("cut 1", copy, "1")], reference(config, empty))
    (HERE / "llama_cache.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    if "--only-recording" not in sys.argv:
        smollm2(kvsim, folder)


main()
