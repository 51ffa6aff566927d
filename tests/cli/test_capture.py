#!/usr/bin/env python3
"""Tests kvsim capture on the shipped sample model."""
import csv
import hashlib
import io
import json
import re
import resource
import shutil
import signal
import subprocess
import time
import unicodedata

import h5py
import numpy as np

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

SAMPLE = SOURCE / "traces" / "sample"
MODEL = SAMPLE / "model"
PROMPTS = SAMPLE / "prompts"


def widen(dataset):
    """Elements of a bf16 or f32 dataset as float64."""
    if dataset.dtype.itemsize == 4:
        return dataset[:].astype(np.float64)
    return (stored_words(dataset).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def safetensor(name):
    """A tensor of the sample checkpoint as stored: dtype, shape, bytes."""
    data = (MODEL / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    facts = json.loads(data[8:start])[name]
    begin, end = facts["data_offsets"]
    return facts["dtype"], facts["shape"], data[start + begin:start + end]


def stored_words(dataset):
    """A dataset's 16-bit elements, not converted."""
    words = np.empty(dataset.shape, dtype=np.uint16)
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, words, mtype=dataset.id.get_type())
    return words


def kind(text):
    """The flag of a token's text, by its definition in SCHEMA.md."""
    inner = text.strip()
    categories = {unicodedata.category(c) for c in inner}
    if text and not inner:
        return 1 << 8
    if categories and all(c[0] in "PS" for c in categories):
        return 1 << 9
    return 1 << 10 if categories == {"Nd"} else 0


class Capture(CommandTest):
    def setUp(self):
        for path in self.folder.glob("run*"):
            path.unlink()

    def capture(self, *more, prompt=PROMPTS / "needle-0500-one.txt", output="run.h5"):
        return ["capture", "--model", MODEL, "--prompt", prompt, "-o", output, "--quiet", *more]

    def left(self):
        return sorted(path.name for path in self.folder.glob("run*"))

    def content(self, path="run.h5"):
        return re.search(r"content ([0-9a-f]{64})", self.ok("trace", "check", path))[1]

    def test_sample_prompts_give_sound_traces(self):
        for name, facts in json.loads((PROMPTS / "answers.json").read_text()).items():
            with self.subTest(name):
                out = self.ok(*self.capture("--max-new-tokens", 4, "--ignore-eos", "--overwrite", prompt=PROMPTS / name))
                self.assertRegex(out, rf"(?m)^prompt +{facts['tokens']} tokens")
                self.assertRegex(out, r"(?m)^generated +4 tokens")
                self.content()

    def test_trace_holds_the_prompt_as_text(self):
        self.ok(*self.capture("--max-new-tokens", 2))
        with h5py.File(self.folder / "run.h5") as trace:
            offset = trace["text/offset"][:]
            prompt = int(trace["segments/count"][0])
            self.assertEqual(bytes(trace["text/bytes"][offset[1]:offset[prompt]]),
                             (PROMPTS / "needle-0500-one.txt").read_bytes())
            self.assertTrue(np.isnan(trace["tokens/logprob"][:prompt]).all())
            self.assertTrue((trace["tokens/logprob"][prompt:] <= 0).all())

    def test_log_probabilities_of_the_prompt_are_those_of_tokens_that_are_given(self):
        self.ok(*self.capture("--max-new-tokens", 3, "--prompt-logprobs", "--prefill-chunk", 50, "--elem", "f32"))
        self.content()
        self.assertIn("sirllm", self.ok("replay", "run.h5", "--policy", "sirllm", "--budget", "25%", "--quiet"))
        with h5py.File(self.folder / "run.h5") as trace:
            ids, found = trace["tokens/id"][...].tolist(), trace["tokens/logprob"][...]
        for name, some in ("first.json", ids[:1]), ("rest.json", ids[1:]):
            (self.folder / name).write_text(json.dumps(some))
        self.ok("capture", "--model", MODEL, "--tokens", "first.json", "--answer-tokens", "rest.json", "--elem", "f32", "-o", "run.h5",
                "--overwrite", "--quiet")
        with h5py.File(self.folder / "run.h5") as trace:
            given = trace["tokens/logprob"][...]
        self.assertTrue(np.isnan(found[0]) and np.isnan(given[0]))
        np.testing.assert_allclose(found[1:], given[1:], atol=1e-4)
        self.ok(*self.capture("--max-new-tokens", 1, "--overwrite"))
        self.assertIn("Capture again with --prompt-logprobs.", self.fails(2, "replay", "run.h5", "--policy", "sirllm", "--budget", "25%"))

    def test_standard_input_and_token_ids_give_the_same_run(self):
        prompt = PROMPTS / "needle-0500-multi.txt"
        self.ok(*self.capture("--max-new-tokens", 3, prompt=prompt))
        expected = self.content()
        with prompt.open() as text:
            done = self.kvsim(*self.capture("--max-new-tokens", 3, "--overwrite", prompt="-"), stdin=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.content(), expected)
        with h5py.File(self.folder / "run.h5") as trace:
            ids = trace["tokens/id"][:int(trace["segments/count"][0])].tolist()
        for name, text in ("ids.json", json.dumps(ids)), ("ids.txt", "\n".join(map(str, ids))):
            (self.folder / name).write_text(text)
            self.ok("capture", "--model", MODEL, "--tokens", name, "--max-new-tokens", 3, "-o", "run.h5", "--overwrite")
            self.assertEqual(self.content(), expected)

    def test_a_compressed_trace_is_the_same_run_in_fewer_bytes(self):
        self.ok(*self.capture("--max-new-tokens", 3))
        plain, size = self.content(), (self.folder / "run.h5").stat().st_size
        replay = ("replay", "run.h5", "--policy", "h2o", "--policy", "snapkv", "--budget", "25%", "--quiet", "--format", "csv")
        rows = self.ok(*replay)
        for level in 1, 9:
            self.ok(*self.capture("--max-new-tokens", 3, "--deflate", level, "--overwrite"))
            self.assertEqual(self.content(), plain)
            self.assertLess((self.folder / "run.h5").stat().st_size, 0.9 * size)
            self.assertEqual(self.ok(*replay), rows)
            self.ok("trace", "check", "run.h5")
        self.assertIn("--deflate", self.fails(2, *self.capture("--deflate", 10, "--overwrite")))

    def test_threads_change_no_byte(self):
        contents = set()
        for threads in 1, 2, 8:
            self.ok(*self.capture("--max-new-tokens", 3, "--threads", threads, "--overwrite"))
            contents.add(self.content())
        self.assertEqual(len(contents), 1)

    def test_attention_rows_follow_from_stored_queries_and_keys(self):
        self.ok(*self.capture("--max-new-tokens", 3, "--ignore-eos", "--attention", "window:20", "--queries", "window:30"))
        with h5py.File(self.folder / "run.h5") as trace:
            for layer in trace["layers"].values():
                q, k, scale = widen(layer["q"]), widen(layer["k"]), trace["model"].attrs["attn_scale"]
                query_row = {int(token): row for row, token in enumerate(layer["q_token"][:])}
                tokens, first, ptr = (layer["rows/" + name][:] for name in ("token", "first_key", "ptr"))
                self.assertEqual(len(tokens), 23)
                group = q.shape[0] // k.shape[0]
                for i, token in enumerate(map(int, tokens)):
                    stored = layer["rows/p"][:, int(ptr[i]):int(ptr[i + 1])]
                    self.assertEqual((first[i], stored.shape[1]), (0, token + 1))
                    for head in range(q.shape[0]):
                        logits = k[head // group, :token + 1] @ q[head, query_row[token]] * scale
                        p = np.exp(logits - logits.max())
                        self.assertLess(np.abs(p / p.sum() - stored[head]).max(), 1e-5)

    def test_pieces_are_runs_of_their_own(self):
        self.ok("workload", "documents", "--context", "200", "--count", "2", "--tokenizer", MODEL, "-o", "documents.jsonl")
        item, other = [json.loads(line) for line in (self.folder / "documents.jsonl").read_text().splitlines()]
        prompt, first = item["prompt"].encode(), item["documents"][0][1]
        item["before"] = (prompt[:first] + b" It was so." + prompt[first:]).decode()
        (self.folder / "edited.jsonl").write_text(json.dumps(item))
        options = ["--max-new-tokens", "2", "--elem", "f32", "--quiet", "--overwrite"]
        self.assertIn("pieces ", self.ok("capture", "--model", MODEL, "--workload", "edited.jsonl", "--pieces", *options, "-o", "pieces.h5"))
        self.ok("trace", "check", "pieces.h5")
        self.ok("capture", "--model", MODEL, "--workload", "edited.jsonl", *options, "-o", "plain.h5")
        with h5py.File(self.folder / "pieces.h5") as trace, h5py.File(self.folder / "plain.h5") as plain:
            begins, counts, roles = (trace[f"segments/{name}"][:] for name in ("begin", "count", "role"))
            self.assertEqual(list(roles), [0, 0] + [5] * len(item["documents"]) + [0])
            self.assertEqual(list(trace["segments/parent"][:]), [-1, 0] + [-1] * (len(roles) - 2))
            n = plain["tokens/id"].shape[0]
            for name in ("k", "v", "q"):  # the prompt's own run comes first
                np.testing.assert_array_equal(trace[f"layers/0001/{name}"][:][:, :n], plain[f"layers/0001/{name}"][:])
            for begin, count in list(zip(begins, counts))[2:]:
                ids = trace["tokens/id"][begin:begin + count].tolist()
                (self.folder / "ids.json").write_text(json.dumps(ids))
                self.ok("capture", "--model", MODEL, "--tokens", "ids.json", "--max-new-tokens", "0", *options[2:], "-o", "alone.h5")
                with h5py.File(self.folder / "alone.h5") as alone:
                    for name in ("k", "v", "q"):
                        np.testing.assert_array_equal(trace[f"layers/0001/{name}"][:][:, begin:begin + count], alone[f"layers/0001/{name}"][:])
        # What a trace says of its pieces is what the loop says where it computes nothing of them again.
        for way, source in (("none", "documents"), ("pie", "before")):
            found = list(csv.DictReader(io.StringIO(self.ok("analyze", "pieces", "pieces.h5", "--source", source, "--format", "csv", "--quiet"))))
            asked = self.ok("evaluate", "--model", MODEL, "--workload", "edited.jsonl", "--policy", "full", "--budget", "100%", "--elem", "f32",
                            "--cut", "question", "--prefill", way, "--per", "seam", "--format", "csv", "--quiet")
            asked = list(csv.DictReader(io.StringIO(asked)))
            self.assertEqual(len(found), len(asked))
            self.assertGreater(max(float(row["value_l2"]) for row in found), 1e-3)
            for mine, its in zip(found, asked):
                for name in ("layer", "distance", "tokens", "key_l2", "value_l2"):
                    self.assertEqual(mine[name], its[name])
        self.assertIn("Leave --sequence out", self.fails(2, "analyze", "pieces", "pieces.h5", "--sequence", "1"))
        self.assertIn("kvsim capture --pieces", self.fails(2, "analyze", "pieces", "plain.h5"))
        self.assertIn("Add --workload FILE", self.fails(2, "capture", "--model", MODEL, "--tokens", "ids.json", "--pieces", "-o", "no.h5"))
        (self.folder / "other.jsonl").write_text(json.dumps({"id": "a", "prompt": "One two three."}))
        self.assertIn("marks no documents", self.fails(2, "capture", "--model", MODEL, "--workload", "other.jsonl", "--pieces", "-o", "no.h5"))

    def test_output_weights_are_those_of_the_checkpoint(self):
        self.ok(*self.capture("--max-new-tokens", 2))
        lean, lean_bytes = self.content(), (self.folder / "run.h5").stat().st_size
        self.assertNotIn("output weights", self.ok("trace", "info", "run.h5"))
        self.ok(*self.capture("--max-new-tokens", 2, "--overwrite", "--output-weights"))
        self.assertEqual(self.content(), lean)
        rng = np.random.default_rng(1)
        stored = 0
        with h5py.File(self.folder / "run.h5") as trace:
            self.assertEqual((trace.attrs["schema_major"], trace.attrs["schema_minor"]), (1, 4))
            self.assertEqual(int(trace.attrs["features"]) >> 7 & 1, 1)
            model = trace["model"].attrs
            heads, dim, hidden = (int(model[name]) for name in ("n_q_heads", "v_head_dim", "hidden_size"))
            for index in range(model["n_layers"]):
                dtype, shape, data = safetensor(f"model.layers.{index}.self_attn.o_proj.weight")
                self.assertEqual((dtype, shape), ("BF16", [hidden, heads * dim]))
                weight = np.frombuffer(data, np.uint16).reshape(shape)
                dataset = trace[f"layers/{index:04d}/wo"]
                self.assertEqual((dataset.shape, dataset.attrs["elem"]), ((heads, dim, hidden), b"bf16"))
                words = stored_words(dataset)
                self.assertEqual(words.reshape(heads * dim, hidden).T.tobytes(), weight.tobytes())
                digests = "".join(hashlib.sha256(head.tobytes()).hexdigest() for head in words)
                self.assertEqual(dataset.attrs["sha256"].decode(), hashlib.sha256(digests.encode()).hexdigest())
                # Their purpose: the heads' concatenated outputs pass through the projection.
                wo, outputs = widen(dataset), rng.standard_normal((heads, dim))
                full = (weight.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
                np.testing.assert_allclose(sum(o @ w for o, w in zip(outputs, wo)), full @ outputs.ravel(), atol=1e-12)
                stored += words.nbytes
        self.assertEqual(stored, 4 * 8 * 64 * 256 * 2)  # layers, heads, head dimension, hidden size, bytes
        self.assertRegex(self.ok("trace", "info", "run.h5"), r"(?m)^output weights +bf16: 1 MiB$")
        self.assertEqual(json.loads(self.ok("trace", "info", "run.h5", "--format", "json"))["stored"]["output_weight_bytes"],
                         stored)
        self.assertGreaterEqual((self.folder / "run.h5").stat().st_size - lean_bytes, stored)
        self.rows("run.h5", "--policy", "h2o", "--budget", "25%")

    def test_what_info_says_of_quantised_models_with_sinks_and_with_latents(self):
        (self.folder / "ids.json").write_text("[3, 4, 5, 6, 7, 8]")
        for name, sinks, latent in ("gpt_oss_mxfp4", True, False), ("deepseek_v3_fp8", False, True):
            self.ok("capture", "--model", SOURCE / "tests/golden/quantised" / name, "--tokens", "ids.json", "--max-new-tokens", 2,
                    "--overwrite", "-o", "run.h5", "--quiet")
            model = json.loads(self.ok("trace", "info", "run.h5", "--format", "json"))["model"]
            with h5py.File(self.folder / "run.h5") as trace:
                stored = trace["model/sinks"][...].tolist() if sinks else None
            self.assertEqual((model["sinks"], model["values_in_keys"], model["logit_softcap"]), (stored, latent, 0))

    def test_token_flags_follow_from_the_text(self):
        for prompt in "needle-0500-one.txt", "variables-0500.txt":
            self.ok(*self.capture("--max-new-tokens", 8, "--ignore-eos", "--overwrite", prompt=PROMPTS / prompt))
            with h5py.File(self.folder / "run.h5") as trace:
                offset, text, flags = (trace[name][:] for name in ("text/offset", "text/bytes", "tokens/flags"))
                prompt_tokens = int(trace["segments/count"][0])
                self.assertEqual(trace["tokens"].attrs["flags_known"], 1 | 1 << 2 | 1 << 8 | 1 << 9 | 1 << 10)
            self.assertEqual(flags[0], 1)  # the beginning-of-text token is not text
            seen = 0
            for t in range(1, len(flags)):
                generated = 4 if t >= prompt_tokens else 0
                if flags[t] & 1:
                    self.assertEqual(flags[t], 1 | generated)
                    continue
                word = bytes(text[offset[t]:offset[t + 1]]).decode()
                self.assertEqual(flags[t], kind(word) | generated, repr(word))
                seen |= int(flags[t])
            self.assertEqual(seen, 1 << 2 | 1 << 8 | 1 << 9 | 1 << 10)

    def test_existing_trace_is_kept_unless_told(self):
        (self.folder / "run.h5").write_text("precious")
        message = self.fails(2, *self.capture())
        self.assertIn("run.h5", message)
        self.assertIn("--overwrite", message)
        self.assertEqual((self.folder / "run.h5").read_text(), "precious")
        self.ok(*self.capture("--max-new-tokens", 1, "--overwrite"))

    def test_inputs_are_never_overwritten(self):
        (self.folder / "run.txt").write_text("text")
        self.fails(2, *self.capture("--overwrite", prompt="run.txt", output="run.txt"))
        self.assertEqual((self.folder / "run.txt").read_text(), "text")

    def test_other_devices_are_refused_by_name(self):
        # cuda:999 does not exist, whether or not kvsim was built with CUDA and finds a driver.
        self.assertRegex(self.fails(2, *self.capture("--device", "cuda:999")),
                         "built without CUDA|no NVIDIA driver|driver supports CUDA|no CUDA device")
        self.assertIn("tpu", self.fails(2, *self.capture("--device", "tpu")))
        self.assertEqual(self.left(), [])

    def test_impossible_requests(self):
        for more, words in [(["--tokens", "x"], ["--prompt", "--tokens"]), (["--max-new-tokens", "-1"], ["max-new-tokens"]),
                            (["--max-new-tokens", "100000"], ["exceed", "At most"]), (["--queries", "none"], ["--queries"]),
                            (["--attention", "window:0"], ["--attention"]), (["--elem", "f64"], ["f64"]),
                            (["--prefill-chunk", "0"], ["--prefill-chunk"]), (["--threads", "0"], ["--threads"])]:
            with self.subTest(more=more):
                message = self.fails(2, *self.capture(*more))
                for word in words:
                    self.assertIn(word, message)
        self.assertEqual(self.left(), [])

    def test_missing_files(self):
        self.assertIn("nothing.txt", self.fails(3, *self.capture(prompt="nothing.txt")))
        self.assertIn("config.json", self.fails(3, "capture", "--model", self.folder, "--prompt", "t.h5", "-o", "run.h5"))
        self.assertEqual(self.left(), [])

    def start_long_run(self):
        """Starts a long capture; returns once it has begun to write."""
        work = subprocess.Popen([KVSIM, *map(str, self.capture("--max-new-tokens", 1500, "--ignore-eos", "--attention", "full",
                                                               prompt=PROMPTS / "needle-0500-one.txt"))],
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a background job
                                                                                                  # ignores SIGINT
        self.addCleanup(work.wait)
        self.addCleanup(work.kill)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(part.stat().st_size > 1 << 20 for part in self.folder.glob("run.h5.*")):
            self.assertIsNone(work.poll(), "ended too early")
            time.sleep(0.01)
        self.assertRegex("".join(self.left()), r"^run\.h5\.[0-9a-f]{8}\.partial$")
        return work

    def test_interruption_leaves_nothing(self):
        work = self.start_long_run()
        work.send_signal(signal.SIGINT)
        out, message = work.communicate(timeout=60)
        self.assertEqual((work.returncode, out), (4, ""))
        self.assertTrue(message.endswith("kvsim: interrupted\n"), message)
        self.assertEqual(self.left(), [])

    def test_a_killed_run_never_looks_finished(self):
        work = self.start_long_run()
        work.kill()
        work.communicate()
        left, = self.left()
        self.assertEqual(self.kvsim("trace", "check", left).returncode, 3)
        self.fails(3, "replay", left, "--policy", "h2o", "--budget", "25%")
        self.ok(*self.capture())
        self.assertEqual(self.left(), ["run.h5"])

    def test_a_full_disk_leaves_nothing(self):
        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        done = self.kvsim(*self.capture(), preexec_fn=limit_files, restore_signals=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("run.h5", done.stderr)
        self.assertEqual(self.left(), [])

    def test_generated_control_characters_do_not_reach_the_terminal(self):
        self.assertNotRegex(self.ok(*self.capture("--max-new-tokens", 64, "--ignore-eos")), r"[\x00-\x08\x0b-\x1f\x7f]")


    def test_a_chat_template_is_told_not_applied(self):
        model = self.folder / "chat"
        shutil.copytree(SOURCE / "traces/sample/model", model)
        (self.folder / "hello.txt").write_text("Hello")
        arguments = ["capture", "--model", model, "--prompt", "hello.txt", "--max-new-tokens", 1, "-o", "chat.h5", "--overwrite", "--quiet"]
        without = self.kvsim(*arguments)
        self.assertEqual((without.returncode, without.stderr), (0, ""))
        for name, text in ("tokenizer_config.json", '{"chat_template": "{{ messages }}"}'), ("chat_template.jinja", "{{ messages }}"):
            (model / name).write_text(text)
            done = self.kvsim(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("has a chat template, which kvsim does not apply"), 1, done.stderr)
            (model / name).unlink()
        (model / "tokenizer_config.json").write_text('{"chat_template": null}')
        self.assertEqual(self.kvsim(*arguments).stderr, "")


if __name__ == "__main__":
    kvsim_command.main()
