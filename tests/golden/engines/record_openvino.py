#!/usr/bin/env python3
"""Runs OpenVINO GenAI's cache eviction beside kvsim's policy openvino, and writes openvino.json, its answers, their log-probabilities and
the blocks it held, for tests/cli/test_openvino.py, which runs without OpenVINO. Beside CI, as the package weighs 100 MB:

    python3 -m venv build/openvino && build/openvino/bin/pip install openvino-genai==2026.4.1.0 h5py gguf
    build/openvino/bin/python tests/golden/engines/record_openvino.py build/release/kvsim [--only-recording]

The sample checkpoint becomes a GGUF file of 16-bit weights, which GenAI reads (324 of its 4.5 M weights are too small for those, and change
by 3e-8 at most), with a cache and arithmetic of 32 bits. CacheEvictionConfig is what `kvsim choose` prints, with two recent blocks in
place of four, so that it takes a quarter of short prompts, and with snapkv_window_size 8 and 0. Besides, prompts of 200 tokens grow beyond
max_cache_size while the answer is generated.

GenAI does not evict when it has read the prompt, but after it has read the first token it generated, too: in _maybe_evict_cache_blocks()
can_generate_tokens() is still false, as finish_iteration() counts the prompt's tokens only later. So the first two tokens of an answer are
the full cache's, and that token's row of attention is added to the prompt's before anything leaves. In kvsim that is a cut one token behind
the prompt and a window of 9 rows in place of 8. What is left apart: GenAI pools the sum of eight rows, and then the ninth row; kvsim
the sum of nine, which now and then lets another block leave. With snapkv_window_size 0 one row among a thousand does not show. (A program
that ran the model block by block, with the scores that OpenVINO gives out, and this rule, had the engine's log-probabilities for 50 answers
of 50, to 6e-5.)

Without --only-recording it then prints, for SmolLM2-135M (tools/model.sh), how many tokens of answers are the same. For that its weights
become 16 bits for both: as Q4_1 GenAI rounds what the file adds to them to a multiple of their step, which is another model. Full caches
gave 9 answers of 9, the later cut 17 of 18 with a window of 8 and 17 of 18 with all rows, the cut at the prompt's end 10 and 7."""
import csv
import io
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import h5py
import numpy as np
import openvino
import openvino_genai

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import small_gguf  # noqa: E402 - after the path to it

KVSIM, MODEL, PROMPTS = pathlib.Path(sys.argv[1]).resolve(), SOURCE / "traces/sample/model", SOURCE / "traces/sample/prompts"
BLOCK, START, RECENT = 32, 1, 2  # blocks of the CPU, and of them those that never leave
FILES, LINES, NEW = ("copy-1000", "needle-1000-multi", "text-1500", "variables-1000"), 8, 40
EXACT = {"KV_CACHE_PRECISION": "f32", "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}


def kvsim(*arguments):
    done = subprocess.run([KVSIM, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def tokens_of(model, folder, *prompt):
    """What the tokenizer of kvsim makes of a prompt."""
    kvsim("capture", "--model", model, *prompt, "--max-new-tokens", 1, "--quiet", "--overwrite", "-o", folder / "prompt.h5")
    with h5py.File(folder / "prompt.h5") as file:
        return file["tokens/id"][:int(file["segments/count"][0])].tolist()


def sample_as_gguf(path):
    """The sample checkpoint with what GenAI needs: matrices of 16 bits, their kind in general.file_type, and a vocabulary."""
    model = json.loads((MODEL / "tokenizer.json").read_text())["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)
    path.write_bytes(small_gguf.llama(*small_gguf.checkpoint(MODEL), {
        "general.file_type": 1, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]], "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(words) - 2)]}, matrices=small_gguf.F16))


def smollm2_as_f16(path):
    """SmolLM2's file with matrices of 16 bits in place of Q4_1."""
    reader = gguf.GGUFReader(subprocess.run([SOURCE / "tools/model.sh"], capture_output=True, text=True, check=True).stdout.strip())
    keys = {name: b"".join(part.tobytes() for part in field.parts[2:])  # type and value
            for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = [(tensor.name, tensor.shape.tolist(), gguf.dequantize(tensor.data, tensor.tensor_type)) for tensor in reader.tensors]
    path.write_bytes(small_gguf.gguf(keys | {"general.file_type": 1}, [
        (name, shape, small_gguf.F16 if len(shape) == 2 else small_gguf.F32, values.astype("<f2" if len(shape) == 2 else "<f4").tobytes())
        for name, shape, values in tensors]))
    return path


class Engine:
    """A model in GenAI, one pipeline per setting of its eviction."""

    def __init__(self, model):
        self.model, self.pipelines = str(model), {}

    def pipeline(self, size, window):
        if (size, window) not in self.pipelines:
            config = openvino_genai.SchedulerConfig()
            config.num_kv_blocks, config.max_num_batched_tokens = 100, 4096  # so a prompt is one chunk
            if size:
                config.use_cache_eviction = True
                config.cache_eviction_config = openvino_genai.CacheEvictionConfig(
                    BLOCK * START, BLOCK * RECENT, size, openvino_genai.AggregationMode.NORM_SUM, snapkv_window_size=window)
            self.pipelines[size, window] = openvino_genai.ContinuousBatchingPipeline(self.model, config, "CPU", EXACT)
        return self.pipelines[size, window]

    def answer(self, ids, new, size=0, window=8):
        """Greedy tokens, their log-probabilities, and in how many passes one after another so many blocks were held."""
        pipeline, asked, held = self.pipeline(size, window), openvino_genai.GenerationConfig(), []
        asked.max_new_tokens, asked.ignore_eos, asked.logprobs = new, True, 1
        handle = pipeline.add_request(0, openvino.Tensor(np.array([ids], np.int64)), asked)
        while pipeline.has_non_finished_requests():
            pipeline.step()
            held.append(round(pipeline.get_metrics().cache_usage))  # of 100 blocks
        found, = handle.read_all()
        return {"max_cache_size": size, "window": window, "answer": list(found.generated_ids),
                "log_p": [round(value, 5) for value in found.generated_log_probs],
                "blocks": [[blocks, len(list(run))] for blocks, run in itertools.groupby(held)]}


def size_of(share, tokens):
    """As the recipe that `kvsim choose` prints."""
    return int(share * tokens) // BLOCK * BLOCK


def record(folder):
    sample_as_gguf(folder / "sample.gguf")
    engine, runs = Engine(folder / "sample.gguf"), []
    work = [{"id": name, "prompt": (PROMPTS / f"{name}.txt").read_text()} for name in FILES]
    with open(PROMPTS / "longbench.jsonl", encoding="utf-8") as file:
        work += [{"id": line["_id"], "prompt": line["context"] + line["input"]} for line in map(json.loads, itertools.islice(file, LINES))]
    (folder / "work.jsonl").write_text("".join(json.dumps(item) + "\n" for item in work))
    for item in work:
        ids = tokens_of(MODEL, folder, "--workload", folder / "work.jsonl", "--item", item["id"])
        runs.append({"prompt": item["id"], "tokens": len(ids), "full": engine.answer(ids, NEW), "shares": [
            {"share": share, **engine.answer(ids, NEW, size_of(share, len(ids)), window)} for window in (8, 0) for share in (0.25, 0.5)],
            "growth": {"tokens": 200, **engine.answer(ids[:200], 160, 256)}})
    about = {"versions": [openvino.get_version(), openvino_genai.__version__], "start": START, "recent": RECENT, "block": BLOCK}
    lines = json.dumps(about)[:-1] + ', "runs": [\n' + ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs) + "\n]}\n"
    (HERE / "openvino.json").write_text(lines)


def same(ours, theirs):
    """How many tokens are the same, of those that kvsim has until it ends the answer, where GenAI is told to go on."""
    return f"{int(np.argmin([*map(int.__eq__, ours, theirs), False]))} of {len(ours)}"


def compare_smollm2(folder):
    model, work, later = (folder / name for name in ("smollm2.gguf", "smollm2.jsonl", "later.h5"))
    smollm2_as_f16(model)
    engine, new = Engine(model), 16

    def evaluated(prompt, size_list, *arguments, windows):
        """Greedy tokens by window (empty: the full cache's) and size."""
        policies = [word for window in windows for word in ("--policy", f"openvino(start={START},recent={RECENT},snapkv_window={window})")]
        found = {}
        for row in csv.DictReader(io.StringIO(kvsim(
                "evaluate", "--model", model, *prompt, *policies, "--budget", ",".join(map(str, size_list)), *arguments, "--mode", "greedy",
                "--elem", "f32", "--per", "token", "--format", "csv", "--quiet"))):
            window = row["params"].partition("snapkv_window=")[2].partition(",")[0]
            found.setdefault((window, int(row["budget"])), []).append(int(row["token"]))
        return found

    print("| prompt | tokens | max_cache_size | window | as kvsim's | as with the later cut | as GenAI's full cache's |")
    for kind, *style in (("needle", "--style", "sentences"), ("needle", "--style", "ruler"), ("passkey",)):
        kvsim("workload", kind, *style, "--context", 600, "--count", 3, "--tokenizer", model, "--overwrite", "-o", work)
        for item in (json.loads(line)["id"] for line in work.read_text().splitlines()):
            ids = tokens_of(model, folder, "--workload", work, "--item", item)
            full, sizes = engine.answer(ids, new)["answer"], [size_of(share, len(ids)) for share in (0.25, 0.5)]
            plain = evaluated(("--workload", work, "--item", item), sizes, "--policy", "full", "--max-new-tokens", new, windows=(8, 0))
            (folder / "ids.json").write_text(json.dumps(ids + full[:2]))
            kvsim("capture", "--model", model, "--tokens", folder / "ids.json", "--max-new-tokens", new - 2, "--ignore-eos", "--elem",
                  "f32", "--quiet", "--overwrite", "-o", later)
            cut = evaluated(("--trace", later), sizes, "--cut", len(ids) + 1, "--max-new-tokens", new - 2, windows=(9, 0))
            print(f"| {' '.join([item, *style[1:]])} | {len(ids)} | full | - | {same(plain['', sizes[0]], full)} | - | - |")
            for window, size in itertools.product((8, 0), sizes):
                theirs = engine.answer(ids, new, size, window)["answer"]
                print(f"| {' '.join([item, *style[1:]])} | {len(ids)} | {size} | {window} | {same(plain[str(window), size], theirs)} "
                      f"| {same(cut['9' if window else '0', size], theirs[2:])} | {same(full, theirs)} |", flush=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        record(pathlib.Path(name))
        if "--only-recording" not in sys.argv:
            compare_smollm2(pathlib.Path(name))


main()
