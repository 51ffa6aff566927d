#!/usr/bin/env python3
"""Runs llama.cpp beside kvsim's own runner, and makes llama_cpp.h5, a recording of the sample checkpoint as a GGUF file, and
llama_cpp.state, what llama.cpp saves of such a run, for tests that run without llama.cpp. Beside CI, because llama.cpp is compiled for 8
minutes:

    python3 -m venv build/llama && build/llama/bin/pip install llama-cpp-python==0.3.36 h5py xxhash
    build/llama/bin/python tests/golden/engines/record_llama_cpp.py build/release/kvsim [--only-recording | --only-states]

Prints, for the sample and for each quantisation of SmolLM2-135M (tools/model.sh), how many greedy tokens of both are the same, and how far
queries, keys and values of these differ: norm of the difference divided by the norm, the worst layer. Where they part, both then go on
with the other's token, which shows how much likelier each finds its own. Of saved states it prints whether their keys and values are those
of a recording of the same run, to the bit, and how far they are from kvsim's."""
import ctypes
import json
import pathlib
import subprocess
import sys
import time

import h5py
import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path[:0] = [str(SOURCE / "tools/python"), str(SOURCE / "tests/support")]
import small_gguf  # noqa: E402 - after the path to it
from kvsim.llama_cpp import record  # noqa: E402
from kvsim.llama_cpp.loaded_model import LoadedModel  # noqa: E402

IDS = [(37 * i + 11) % 2048 for i in range(12)]
PROMPT = SOURCE / "traces/sample/prompts/needle-0500-one.txt"
TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "Q6_K": 18, "Q4_K_M": 15, "Q4_0": 2}


def made_again(source, target, kind):
    """A GGUF file with its weights as another type."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = kind, True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)):
        sys.exit(f"{target}: llama.cpp cannot make it")


def answer(trace):
    """The generated tokens of a trace, and their log-probabilities."""
    with h5py.File(trace) as file:
        prompt = int(file["segments/count"][0])
        return file["tokens/id"][prompt:].tolist(), file["tokens/logprob"][prompt:]


def parted(capture, run, native, theirs):
    """A line for two answers that part: how much likelier each engine finds its token than the other's, and how far the
    log-probabilities of the tokens before are apart. `capture` and `run` make those traces of a given answer."""
    (mine, my), (their, others) = answer(native), answer(theirs)
    at = int(np.argmin(np.equal(mine, their)))
    capture([*mine[:at], their[at]])
    run([*mine[:at], mine[at]])
    apart = np.abs(my[:at] - others[:at])
    return (f"  parted after {at}: kvsim's token is {my[at] - answer(native)[1][at]:.4f} likelier to it, llama.cpp's "
            f"{others[at] - answer(theirs)[1][at]:.4f}; tokens before differ by {np.median(apart):.4f}, at most {apart.max():.4f}")


def compared(kvsim, name, file, folder, cache="f32", flash=False):
    """A line that compares the run of a file by llama.cpp with that by kvsim."""
    native, theirs = folder / "native.h5", folder / "llama.h5"

    def capture(given=None):
        ids = folder / "answer.json"
        if given:
            ids.write_text(json.dumps(given))
        subprocess.run([kvsim, "capture", "--model", file, "--prompt", PROMPT, *(["--answer-tokens", ids] if given else
                        ["--max-new-tokens", "64"]), "--ignore-eos", "--elem", "f32", "--threads", "1", "--quiet", "--overwrite",
                        "-o", native], check=True, capture_output=True)

    def run(given=None):
        return record(file, theirs, PROMPT.read_text(), answer_tokens=given, ignore_eos=True, cache=cache, flash=flash, threads=1,
                      overwrite=True)

    seconds = time.perf_counter()
    capture()
    seconds, began = time.perf_counter() - seconds, time.perf_counter()
    prompt = len(run().prompt)
    began = time.perf_counter() - began
    with h5py.File(native) as a, h5py.File(theirs) as b:
        ids, others = a["tokens/id"][:], b["tokens/id"][:]
        same = int(np.argmin(np.append(ids == others, False)))
        worst = {}
        for layer in a["layers"]:
            for kind in "qkv":
                mine, their = (trace[f"layers/{layer}/{kind}"][:, :same].astype("f8") for trace in (a, b))
                worst[kind] = max(worst.get(kind, 0), np.linalg.norm(mine - their) / np.linalg.norm(mine))
    print(f"| {name} | {cache}{', flash' if flash else ''} | {same - prompt} of 64 | "
          + " | ".join(f"{worst[kind]:.1e}" for kind in "qkv") + f" | {seconds:.1f} | {began:.1f} |", flush=True)
    if same - prompt < 64:
        print(parted(capture, run, native, theirs), flush=True)


def save(model, path, ids, cache, flash, chunk=512, session=False):
    """Lets llama.cpp read tokens and save its cache."""
    with LoadedModel(model) as loaded:
        nobody = llama_cpp.ggml_backend_sched_eval_callback(lambda *_: False)
        loaded.open_context(len(ids) + 1, chunk, (cache, cache), flash, 1, nobody)
        for first in range(0, len(ids), chunk):
            loaded.run(ids[first:first + chunk])
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        done = llama_cpp.llama_state_save_file(loaded._context, str(path).encode(), tokens, len(ids)) if session else \
            llama_cpp.llama_state_seq_save_file(loaded._context, str(path).encode(), 0, tokens, len(ids))
        if not done:
            sys.exit(f"{path}: llama.cpp did not save it")


def compare_states(kvsim, file, folder):
    native, theirs, read, state = (folder / name for name in ("native.h5", "llama.h5", "state.h5", "run.state"))
    subprocess.run([kvsim, "capture", "--model", file, "--prompt", PROMPT, "--max-new-tokens", "8", "--ignore-eos", "--elem", "f32",
                    "--threads", "1", "--quiet", "--overwrite", "-o", native], check=True, capture_output=True)
    with h5py.File(native) as trace:
        prompt = int(trace["segments/count"][0])
        ids = trace["tokens/id"][:prompt].tolist()
    print("| cache | file | bytes | prompt as recorded | same 8 tokens | k | v |\n|---|---|---|---|---|---|---|")
    for cache, flash, session in (("f32", False, False), ("f16", False, False), ("f16", True, False), ("f16", True, True),
                                  ("q8_0", True, False), ("q4_0", True, False)):
        record(file, theirs, tokens=ids, max_new_tokens=8, cache=cache, flash=flash, threads=1, overwrite=True)
        save(file, state, ids, cache, flash, session=session)
        record(file, read, state=state, max_new_tokens=8, threads=1, overwrite=True)
        subprocess.run([kvsim, "trace", "check", "-q", read], check=True, capture_output=True)
        with h5py.File(native) as a, h5py.File(theirs) as b, h5py.File(read) as c:
            pairs = [[trace[f"layers/{layer}/{kind}"][:, :prompt].astype("f8") for trace in (a, b, c)]
                     for kind in "kv" for layer in a["layers"]]
            same = all(np.array_equal(recorded, found) for _, recorded, found in pairs) and c["tokens/id"][:prompt].tolist() == ids
            went_on = int((b["tokens/id"][prompt:] == c["tokens/id"][prompt:]).sum())
            queries = max(float(np.abs(b[f"layers/{layer}/q"][:, prompt - 1:] - c[f"layers/{layer}/q"][:]).max()) for layer in a["layers"])
        apart = [np.linalg.norm(found - mine) / np.linalg.norm(mine) for mine, _, found in pairs]
        half = len(apart) // 2
        print(f"| {cache}{', flash' if flash else ''} | {'context' if session else 'sequence'} | {state.stat().st_size} | "
              f"{'yes' if same else 'NO'} | {went_on}, q {queries:.1e} | {max(apart[:half]):.1e} | {max(apart[half:]):.1e} |", flush=True)
    state.unlink()


def main():
    folder = SOURCE / "build/engines"
    folder.mkdir(parents=True, exist_ok=True)
    sample = folder / "sample.gguf"
    sample.write_bytes(small_gguf.llama(*small_gguf.checkpoint(SOURCE / "traces/sample/model"), {"tokenizer.ggml.model": "no_vocab"}))
    base = pathlib.Path(subprocess.run([SOURCE / "tools/model.sh"], capture_output=True, text=True, check=True).stdout.strip())
    if "--only-states" in sys.argv:
        return compare_states(sys.argv[1], base, folder)
    save(sample, HERE / "llama_cpp.state", IDS, "f16", False)
    record(sample, HERE / "llama_cpp.h5", tokens=IDS, max_new_tokens=4, ignore_eos=True, cache="f32", flash=False, threads=1, overwrite=True)
    if "--only-recording" in sys.argv:
        return
    print(f"llama-cpp-python {llama_cpp.__version__}\n| weights | cache | same tokens | q | k | v | kvsim s | llama.cpp s |")
    for name, kind in TYPES.items():
        file = folder / f"smollm2-{name}.gguf"
        made_again(base, file, kind)
        for cache, flash in (("f32", False), ("f16", True), ("q8_0", True), ("q4_0", True)) if name == "F32" else (("f32", False),):
            compared(sys.argv[1], name, file, folder, cache, flash)
        file.unlink()
    compare_states(sys.argv[1], base, folder)


main()
