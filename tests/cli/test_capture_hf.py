#!/usr/bin/env python3
"""Compares the Hugging Face hook with kvsim's own tracer and with transformers.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_capture_hf.py KVSIM SOURCE_DIR
"""
import contextlib
import copy
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from torch_python import require_torch

require_torch()

import h5py  # noqa: E402 - from here on there is torch
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

sys.path.insert(0, str(SOURCE / "tools" / "python"))
import capture_hf  # noqa: E402 - after the path to it
from try_architectures import BEGIN, END, FAMILIES, README, attended, outcome, tiny, traced_call  # noqa: E402
from kvsim.hf import SelectionError, TraceError, trace  # noqa: E402
from kvsim.hf.chat import tokenize_chat  # noqa: E402
from kvsim.hf.generation import Generator  # noqa: E402
from kvsim.hf.sampling import Sampling  # noqa: E402
from kvsim.writing.token_tree import Note  # noqa: E402

EAGER_ONLY = {"gemma2_capped", "gpt_oss_sinks"}  # golden checkpoints that transformers runs in no other way
SAMPLE = SOURCE / "traces/sample"
GOLDEN = SOURCE / "tests/golden/capture"
DTYPE = "dtype" if hasattr(transformers.PretrainedConfig(), "dtype") else "torch_dtype"
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def load(folder, dtype=torch.float32, kind="sdpa"):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=kind, **{DTYPE: dtype}).eval()


def tensor(file, layer, name):
    if name == "v" and file.attrs.get("needs", 0) & 4:  # values are in keys
        return tensor(file, layer, "k")[..., :file["model"].attrs["v_head_dim"]]
    return file[f"layers/{layer:04d}/{name}"][...].astype(np.float64)


def difference(a, b):
    """The relative difference in the Frobenius norm."""
    return np.linalg.norm(a - b) / np.linalg.norm(b)


class HookTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = load(SAMPLE / "model")
        cls.tokenizer = transformers.AutoTokenizer.from_pretrained(SAMPLE / "model")
        cls.text = (SAMPLE / "prompts/needle-0500-one.txt").read_text()
        cls.ids = cls.tokenizer(cls.text)["input_ids"]

    def path(self, name):
        return str(pathlib.Path(self.folder) / name)

    def tracing(self, name, **options):
        return trace(self.model, self.path(name), self.tokenizer, overwrite=True, **options)

    def read(self, name):
        file = h5py.File(self.path(name), "r")
        self.addCleanup(file.close)
        self.assertIn("sound", self.ok("trace", "check", name))
        return file

    def native(self, model, ids, name, *options):
        pathlib.Path(self.path("ids.json")).write_text(json.dumps([int(i) for i in ids]))
        self.ok("capture", "--model", model, "--tokens", "ids.json", "--ignore-eos", "--quiet", "--overwrite", "-o", name,
                *options)
        return self.read(name)

    def generate(self, ids, count, **options):
        return self.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                   max_new_tokens=count, do_sample=False, pad_token_id=1, **options)[0].tolist()

    def compare(self, found, expected, bound, names=("q", "k", "v")):
        for layer in range(expected["model"].attrs["n_layers"]):
            for name in names:
                self.assertLessEqual(difference(tensor(found, layer, name), tensor(expected, layer, name)), bound,
                                     f"{name} of layer {layer}")

    def same_description(self, found, expected):
        for group in "model", "tokenizer":
            for name, value in expected[group].attrs.items():
                if isinstance(value, np.float64):  # 8 ** -0.5 is not quite 1 / sqrt(8)
                    value = found[group].attrs[name] if abs(found[group].attrs[name] - value) < 1e-12 * value else value
                self.assertEqual(found[group].attrs[name], value, f"{group} {name}")
        for name in {"layer_window", "config_json", "layer_rotation", "rotation_factor", "sinks"} & set(expected["model"]):
            np.testing.assert_array_equal(found["model"][name][...], expected["model"][name][...], name)
        self.assertEqual(found.attrs.get("needs", 0), expected.attrs.get("needs", 0))
        np.testing.assert_allclose(found["model/inv_freq"][...], expected["model/inv_freq"][...], rtol=3e-7)


class Tool(HookTest):
    """Tests of the command tools/python/capture_hf.py."""

    def hook(self, *arguments, code=0):
        """Runs the command in this process, because importing PyTorch and transformers takes longer than most runs."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                returned = capture_hf.main([str(argument) for argument in arguments])
            except SystemExit as end:  # --help
                returned = end.code
        self.assertEqual(returned, code, out.getvalue() + err.getvalue())
        return out.getvalue() if code == 0 else err.getvalue()

    def test_as_a_command(self):
        for arguments, code in ((["--tokens", "ids.json", "--max-new-tokens", "2", "-o", "command.h5"], 0),
                                (["--tokens", "ids.json", "--prompt", "ids.json", "-o", "no.h5"], 2)):
            pathlib.Path(self.path("ids.json")).write_text("[5, 6, 7]")
            done = subprocess.run([sys.executable, SOURCE / "tools/python/capture_hf.py", SAMPLE / "model", *arguments], cwd=self.folder,
                                  capture_output=True, text=True, timeout=250, check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn(*(("wrote      command.h5", done.stdout) if code == 0 else ("not allowed with", done.stderr)))
        self.assertEqual(self.read("command.h5").attrs["n_tokens"], 5)

    def test_its_trace_of_the_sample_is_the_native_one(self):
        prompt = SAMPLE / "prompts/needle-0500-one.txt"
        self.ok("capture", "--model", SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 8, "--elem", "f32",
                "--attention", "window:4", "--output-weights", "--quiet", "-o", "native.h5")
        self.hook(SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 8, "--dtype", "float32", "--attention",
                  "window:4", "--output-weights", "-o", "hook.h5")
        native, hook = self.read("native.h5"), self.read("hook.h5")
        self.same_description(hook, native)
        self.compare(hook, native, 1e-5, ("q", "k", "v", "rows/p"))
        for name in "wo", "q_token", "rows/token", "rows/first_key", "rows/ptr":
            if name in native["layers/0003"]:
                np.testing.assert_array_equal(tensor(hook, 3, name), tensor(native, 3, name), name)
        for name in native["tokens"]:
            np.testing.assert_allclose(hook["tokens"][name][...], native["tokens"][name][...], atol=1e-4, err_msg=name)
        self.assertEqual(hook["tokens"].attrs["flags_known"], native["tokens"].attrs["flags_known"])
        for group in "segments", "sequences", "text":
            for name in native[group]:
                np.testing.assert_array_equal(hook[group][name][...], native[group][name][...], name)

        policies = ["--policy", "window", "--policy", "h2o", "--policy", "snapkv", "--budget", "20%"]
        for mine, theirs in zip(self.rows("hook.h5", *policies), self.rows("native.h5", *policies), strict=True):
            self.assertEqual([mine[key] for key in ("policy", "kept_tokens", "budget_tokens", "step")],
                             [theirs[key] for key in ("policy", "kept_tokens", "budget_tokens", "step")])
            for key in "attention_loss", "attention_loss_oracle", "output_error":
                self.assertAlmostEqual(mine[key], theirs[key], delta=1e-4, msg=f"{key} of {mine['policy']}")

    def test_bfloat16(self):
        """transformers rounds every step of the model to bfloat16 (8 bits), kvsim only the stored tensors: 2% is a few
        roundings in each of four layers."""
        prompt = SAMPLE / "prompts/needle-0500-one.txt"
        self.ok("capture", "--model", SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 3, "--quiet", "-o", "n16.h5")
        self.hook(SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 3, "-o", "h16.h5")
        native, hook = self.read("n16.h5"), self.read("h16.h5")
        self.assertEqual(hook["layers/0000/k"].attrs["elem"], b"bf16")
        self.compare(hook, native, 2e-2)
        self.assertLessEqual(difference(tensor(hook, 0, "v"), tensor(native, 0, "v")), 4e-3)
        self.assertFalse(hook["capture"].attrs["rope_fp32"])

    def test_queries_left_out_leave_their_sums(self):
        options = ["--queries", "window:8,sample:16", "--prefill-chunk", 100]
        prompt = SAMPLE / "prompts/needle-0500-one.txt"
        self.hook(SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 2, "--dtype", "float32", "-o", "slim.h5", *options)
        self.hook(SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 2, "--dtype", "float32", "--attention", "full",
                  "-o", "full.h5")
        slim, full = self.read("slim.h5"), self.read("full.h5")
        kept, count = slim["layers/0000/q_token"][...], len(self.ids)
        self.assertEqual(len(kept), 8 + 16 + 2)
        self.compare(slim, full, 1e-5, ("k", "v"))
        self.ok("capture", "--model", SAMPLE / "model", "--prompt", prompt, "--max-new-tokens", 2, "--elem", "f32", *options,
                "--quiet", "-o", "nslim.h5")
        native = self.read("nslim.h5")
        self.assertEqual(kept.tolist(), native["layers/0000/q_token"][...].tolist())
        self.compare(slim, native, 1e-5, ("q", "column/sum", "column/sum_squares"))
        ptr, p = full["layers/0002/rows/ptr"][...], full["layers/0002/rows/p"][...].astype(np.float64)
        rows = np.zeros((8, count, count))
        for row in range(count):
            rows[:, row, :row + 1] = p[:, ptr[row]:ptr[row + 1]]
        np.testing.assert_allclose(tensor(slim, 2, "column/sum"), rows.sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(tensor(slim, 2, "column/sum_squares"), (rows ** 2).sum(1), rtol=1e-4, atol=1e-5)

    def test_documents_alone_beside_their_prompt(self):
        """Calls of the model with the prompt and with each document behind the first token: what a trace of kvsim capture --pieces says."""
        self.ok("workload", "documents", "--context", "200", "--tokenizer", SAMPLE / "model", "-o", "documents.jsonl")
        self.ok("capture", "--model", SAMPLE / "model", "--workload", "documents.jsonl", "--pieces", "--max-new-tokens", 0, "--elem", "f32",
                "--quiet", "-o", "pieces.h5")
        native = self.read("pieces.h5")
        begins, counts, ids = (native[name][...] for name in ("segments/begin", "segments/count", "tokens/id"))
        with trace(self.model, self.path("called.h5")), torch.no_grad():
            for begin, count in zip(begins, counts):
                self.model(torch.from_numpy(ids[begin:begin + count].astype(np.int64))[None])
        tables = [list(csv.DictReader(io.StringIO(self.ok("analyze", "pieces", name, "--format", "csv", "--quiet"))))
                  for name in ("pieces.h5", "called.h5")]
        self.assertGreater(max(float(row["value_l2"]) for row in tables[0]), 0.01)
        for mine, its in zip(*tables, strict=True):
            for key in mine.keys() - {"trace"}:
                self.assertAlmostEqual(float(mine[key]), float(its[key]), delta=1e-4, msg=key)

    def test_the_same_seed_draws_the_same_tokens(self):
        """The hook draws the same tokens as kvsim capture, from logits that agree to 1e-5."""
        prompt = SAMPLE / "prompts/needle-0500-one.txt"
        options = ["--prompt", prompt, "--max-new-tokens", 24, "--ignore-eos", "--temperature", 1.5, "--top-k", 40, "--top-p",
                   0.9, "--seed", 7]
        self.ok("capture", "--model", SAMPLE / "model", *options, "--elem", "f32", "--quiet", "-o", "n7.h5")
        self.hook(SAMPLE / "model", *options, "--dtype", "float32", "-o", "h7.h5")
        native, hook = self.read("n7.h5"), self.read("h7.h5")
        self.assertEqual(hook["tokens/id"][...].tolist(), native["tokens/id"][...].tolist())
        for name in "sampling", "seed":
            self.assertEqual(hook["capture"].attrs[name], native["capture"].attrs[name])
        self.ok("diff", "h7.h5", "n7.h5", "--quiet")

    def test_answers_of_others(self):
        pathlib.Path(self.path("p.json")).write_text(json.dumps(self.ids[:30]))
        pathlib.Path(self.path("a.json")).write_text("[5, 6, 7]")
        options = ["--tokens", "p.json", "--answer-tokens", "a.json"]
        self.ok("capture", "--model", SAMPLE / "model", *options, "--elem", "f32", "--quiet", "-o", "na.h5")
        self.hook(SAMPLE / "model", *options, "--dtype", "float32", "-o", "ha.h5")
        native, hook = self.read("na.h5"), self.read("ha.h5")
        for name in "tokens/id", "tokens/flags", "segments/phase", "passes/phase":
            np.testing.assert_array_equal(hook[name][...], native[name][...], name)
        for name in "sampling", "teacher_forced":
            self.assertEqual(hook["capture"].attrs[name], native["capture"].attrs[name])
        np.testing.assert_allclose(hook["tokens/logprob"][...], native["tokens/logprob"][...], atol=1e-4)

    def test_questions_about_a_document_share_it(self):
        for name, text in (("doc.txt", "The box holds 12 apples and 7 pears.\n"), ("a.txt", "How many apples?"),
                           ("b.txt", "And the pears, then?")):
            pathlib.Path(self.path(name)).write_text(text)
        self.hook(SAMPLE / "model", "--prompt", "doc.txt", "--question", "a.txt", "--question", "b.txt", "--dtype", "float32",
                  "--max-new-tokens", 3, "--ignore-eos", "-o", "tree.h5")
        tree = self.read("tree.h5")
        self.assertEqual(tree["segments/parent"][...].tolist(), [-1, 0, 1, 0, 3])
        self.assertEqual(tree["segments/role"][...].tolist(), [5, 2, 2, 2, 2])
        self.assertEqual(tree["sequences/leaf"][...].tolist(), [2, 4])
        linear = self.tokenizer("The box holds 12 apples and 7 pears.\n")["input_ids"]
        linear += self.tokenizer("And the pears, then?", add_special_tokens=False)["input_ids"]
        native = self.native(SAMPLE / "model", linear, "linear.h5", "--max-new-tokens", 3, "--elem", "f32")
        owner = tree["tokens/segment"][...]
        path = np.flatnonzero(np.isin(owner, [0, 3, 4]))
        self.assertEqual(tree["tokens/id"][...][path].tolist(), native["tokens/id"][...].tolist())
        for layer in range(4):
            for name in "q", "k", "v":
                self.assertLessEqual(difference(tensor(tree, layer, name)[:, path], tensor(native, layer, name)), 1e-5)

    def marks(self, name):
        """The tokens of context, question and evidence, and which of these flags are known."""
        file = self.read(name)
        return (file["tokens/flags"][...] & 0b111000).tolist(), int(file["tokens"].attrs["flags_known"]) & 0b111000

    def test_parts_are_marked_as_kvsim_marks_them(self):
        """A workload's prompt is marked as by kvsim capture --workload, a tree as by kvsim trace mark."""
        self.ok("workload", "needle-multi-key", "--context", 300, "--tokenizer", SAMPLE / "model", "--count", 1, "-o", "p.jsonl")
        item = json.loads(pathlib.Path(self.path("p.jsonl")).read_text())
        self.ok("capture", "--model", SAMPLE / "model", "--workload", "p.jsonl", "--max-new-tokens", 3, "--ignore-eos",
                "--quiet", "-o", "item.h5")
        pathlib.Path(self.path("item.txt")).write_text(item["prompt"])
        told = [f"--mark-{span['role']}=text:{item['prompt'].encode()[span['begin']:span['end']].decode()}"
                for span in item["spans"] if span["role"] != "question"]
        with h5py.File(self.path("item.h5")) as file:
            question = np.flatnonzero(file["tokens/flags"][...] & 8)  # the evidence contains its text, too
        self.hook(SAMPLE / "model", "--prompt", "item.txt", "--max-new-tokens", 3, "--ignore-eos", *told, "--mark-question",
                  ",".join(map(str, question)), "-o", "marked.h5")
        flags, known = self.marks("item.h5")
        self.assertEqual(self.marks("marked.h5"), (flags, known))
        self.assertEqual((known, set(flags) - {0}), (8 + 16 + 32, {8, 16, 16 + 32}))

        for name, text in (("doc.txt", "The box holds 12 apples. The bag holds 7 pears.\n"), ("a.txt", "How many apples?"),
                           ("b.txt", "And the pears?")):
            pathlib.Path(self.path(name)).write_text(text)
        ask = [SAMPLE / "model", "--prompt", "doc.txt", "--question", "a.txt", "--question", "b.txt", "--max-new-tokens", 2,
               "--ignore-eos"]
        self.hook(*ask, "-o", "plain.h5")
        self.ok("trace", "mark", "plain.h5", "--evidence", "holds 12", "--evidence", "2:4", "--question", "holds", "--occurrence",
                2, "-o", "expected.h5")
        self.hook(*ask, "--mark-evidence", "holds 12", "--mark-evidence", "2:4", "--mark-question", "holds", "--occurrence", 2,
                  "-o", "parts.h5")
        self.assertEqual(self.marks("parts.h5"), self.marks("expected.h5"))
        self.assertNotEqual(self.marks("parts.h5")[0], self.marks("plain.h5")[0])

    def test_parts_that_are_not_there(self):
        pathlib.Path(self.path("two.txt")).write_text("A box, and a box.")
        pathlib.Path(self.path("q.txt")).write_text("Which box?")
        ask = [SAMPLE / "model", "--prompt", "two.txt", "--max-new-tokens", 2, "-o", "x.h5"]
        for options, message in ((["--mark-evidence", "bag"], '--mark-evidence: "bag" is not in the prompt'),
                                 (["--mark-context", "box"], '--mark-context: "box" is in the prompt 2 times'),
                                 (["--mark-context", "box", "--occurrence", "3"], "2 times"),
                                 (["--mark-question", "40:50"], "beyond the trace's"),
                                 (["--mark-question", "x", "--occurrence", "0"], "--occurrence"),
                                 (["--mark-evidense", "x"], "Did you mean --mark-evidence")):
            with self.subTest(message):
                self.assertIn(message, self.hook(*ask, *options, code=2))
                self.assertFalse(os.path.exists(self.path("x.h5")))
        # An answer of unknown length follows the first of two questions, so its numbers are checked at the end.
        message = self.hook(*ask, "--question", "q.txt", "--question", "two.txt", "--mark-evidence", "9999", code=2)
        self.assertIn("is written, without marks", message)
        self.assertFalse(self.marks("x.h5")[1] & 32)

    def test_mistakes(self):
        cases = [(2, [SAMPLE / "model", "-o", "x.h5"], "required"),
                 (2, [SAMPLE / "model", "--prompt", "p", "-o", "x.h5", "--querys", "all"], "Did you mean --queries"),
                 (2, [SAMPLE / "model", "--prompt", "p", "-o", "t.h5"], "exists already"),
                 (2, [SAMPLE / "model", "--prompt", "p", "-o", "x.h5", "--top-k", "-1"], "whole number"),
                 (2, [SAMPLE / "model", "--tokens", "p", "--question", "q", "-o", "x.h5"], "--prompt"),
                 (3, [SAMPLE / "model", "--prompt", "missing.txt", "-o", "x.h5"], "missing.txt: No such file"),
                 (2, [SAMPLE / "model", "--prompt", "p", "-o", "x.h5", "--queries", "windw:5"], "--queries: \"windw:5\""),
                 (2, [SAMPLE / "model", "--prompt", "p", "-o", "x.h5", "--attention", "some"], "--attention: \"some\""),
                 (3, [GOLDEN / "qwen3_qk_norm", "--prompt", SAMPLE / "prompts/copy-0500.txt", "-o", "x.h5"], "--tokens"),
                 (3, ["/nowhere/model", "--prompt", "p", "-o", "x.h5"], "no such folder")]
        pathlib.Path(self.path("wrong.json")).write_text("[1, 2, 99999]")
        cases.append((3, [SAMPLE / "model", "--tokens", "wrong.json", "-o", "x.h5"], "token 2: 99999 is not an id"))
        pathlib.Path(self.path("chat.json")).write_text('[{"role": "user", "content": "hello"}]')
        cases.append((3, [SAMPLE / "model", "--chat", "chat.json", "-o", "x.h5"], "no chat template"))
        for code, arguments, message in cases:
            with self.subTest(message):
                text = self.hook(*arguments, code=code)
                self.assertTrue(text.startswith("capture_hf.py: "), text)
                self.assertIn(message, text)
        self.assertEqual(list(self.folder.glob("x.h5*")), [])
        self.assertTrue(self.hook("--help").startswith("Examples:"))


class Goldens(HookTest):
    """Compares tiny models of every family with float32 eager attention of another version of transformers and
    PyTorch."""

    def test_stages_and_description(self):
        for folder in sorted(path.parent for path in GOLDEN.glob("*/golden.safetensors")):
            golden = load_file(folder / "golden.safetensors")
            rope = json.loads((folder / "config.json").read_text()).get("rope_parameters") or {}
            if "tokens" not in golden or rope.get("rope_type", "default") != "default" and transformers.__version__ < "5":
                continue  # transformers 4 does not read rope_parameters
            with self.subTest(folder.name):
                self.check(folder, golden)

    def check(self, folder, golden):
        ids = golden["tokens"].tolist()
        for kind in ["eager"] if folder.name in EAGER_ONLY else ["sdpa", "eager"]:
            model = load(folder, kind=kind)
            with trace(model, self.path("g.h5"), directory=str(folder), attention="window:8", overwrite=True), \
                    torch.no_grad():
                model(torch.tensor([ids]))
            found = self.read("g.h5")
            for layer in range(2):
                for name in "q", "k", "v":
                    np.testing.assert_allclose(tensor(found, layer, name), golden[f"{name}.{layer}"].numpy(), atol=1e-5)
                self.check_rows(found[f"layers/{layer:04d}/rows"], golden[f"rows.{layer}"].numpy())
        native = self.native(folder, ids, "n.h5", "--max-new-tokens", 0, "--elem", "f32")
        self.same_description(found, native)

    def check_rows(self, rows, golden):
        ptr, first = rows["ptr"][...], rows["first_key"][...]
        for row, token in enumerate(rows["token"][...]):
            stored = rows["p"][:, ptr[row]:ptr[row + 1]]
            np.testing.assert_allclose(stored, golden[:, row, first[row]:token + 1], atol=1e-5)
            np.testing.assert_allclose(golden[:, row, :first[row]], 0, atol=0)

    def test_windows_survive_chunks_and_decoding(self):
        """mistral_window sees 7 keys; its cache drops the others, so new rows must be taken from the remaining ones. In
        llama4_chunks a chunk ends while tokens are generated."""
        for name in "mistral_window", "qwen2_late_window", "llama4_chunks":
            model = load(GOLDEN / name)
            ids = load_file(GOLDEN / name / "golden.safetensors")["tokens"].tolist()
            native = self.native(GOLDEN / name, ids, "n.h5", "--max-new-tokens", 12, "--elem", "f32", "--attention", "full")
            for chunk in (40, 9, 1):
                with trace(model, self.path("w.h5"), attention="full", overwrite=True) as session:
                    session.describe_prompt([Note() for _ in ids])
                    generator = Generator(model, Sampling(), chunk, [])
                    cache, logits = generator.prefill(ids)
                    generator.decode(cache, logits, 12)
                found = self.read("w.h5")
                self.assertEqual(found["tokens/id"][...].tolist(), native["tokens/id"][...].tolist())
                self.compare(found, native, 1e-5, ("q", "k", "v", "rows/p"))


    @unittest.skipUnless(transformers.__version__ >= "5", "writes configurations of transformers 5")
    def test_the_text_of_a_model_that_sees_images(self):
        text = GOLDEN / "llama4_chunks"
        vision = dict(hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14,
                      vision_output_dim=16, projector_input_dim=16, projector_output_dim=16)
        both = transformers.Llama4ForConditionalGeneration(transformers.Llama4Config(
            text_config=json.loads((text / "config.json").read_text()), vision_config=vision))
        both.language_model.load_state_dict(load(text).state_dict())
        both.save_pretrained(self.path("both"))
        ids = load_file(text / "golden.safetensors")["tokens"].tolist()
        found, expected = (self.native(folder, ids, name, "--max-new-tokens", 9, "--elem", "f32")
                           for folder, name in ((self.path("both"), "both.h5"), (text, "text.h5")))
        self.compare(found, expected, 1e-5)
        np.testing.assert_array_equal(found["tokens/id"][...], expected["tokens/id"][...])


class Architectures(HookTest):
    """Architectures that kvsim itself does not run: either the trace explains the input of each layer's output
    projection, or the model is refused."""

    def test_attention_follows_from_the_trace(self):
        for family, layout, changes in (("Glm", b"interleaved", {}), ("Granite", b"half_split", {}),
                                        ("Gemma2", b"half_split", {}), ("GptOss", b"half_split", {}), ("DeepseekV2", b"interleaved", {}),
                                        ("DeepseekV3", b"interleaved", {}), ("Olmo2", b"half_split", {}),
                                        ("Starcoder2", b"half_split", {})):
            with self.subTest(family):
                model = tiny(family, **changes)
                given = traced_call(model, self.path("a.h5"))
                file = self.read("a.h5")
                self.assertEqual(file["model"].attrs["rope_layout"], layout)
                self.assertEqual(len(given), 4)
                for layer, expected in enumerate(given):
                    np.testing.assert_allclose(attended(file, layer, model.model.layers[layer].self_attn), expected, atol=1e-5)

    def test_layers_rotate_apart(self):
        """Gemma 3 has a rotation for its windows; in Cohere 2, EXAONE 4 and SmolLM 3 every fourth layer rotates nothing."""
        mixed = {"sliding_window": 9, "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"]}
        for family, rotation, changes in (("Gemma3", [1, 1, 0, 1], mixed),
                                          ("Cohere2", [0, 0, 0, 1], {"sliding_window": 9}),
                                          ("Exaone4", [0, 0, 0, 1], {"sliding_window": 9}), ("SmolLM3", [0, 0, 0, 1], {})):
            with self.subTest(family):
                given = traced_call(tiny(family, **changes), self.path("a.h5"))
                file = self.read("a.h5")
                about = file["model"]
                self.assertEqual((file.attrs["schema_major"], file.attrs["schema_minor"], file.attrs["needs"]), (2, 0, 1))
                self.assertEqual(about["layer_rotation"][...].tolist(), rotation)
                self.assertEqual(about["inv_freq"].shape, (2, 4))
                if family == "Gemma3":
                    np.testing.assert_allclose(about["inv_freq"][...], [[1e6 ** -(i / 4) for i in range(4)],
                                                                        [1e4 ** -(i / 4) for i in range(4)]], rtol=3e-7)
                else:
                    np.testing.assert_array_equal(about["inv_freq"][1], 0)
                for layer, expected in enumerate(given):
                    np.testing.assert_allclose(attended(file, layer), expected, atol=1e-5)

    def test_refused(self):
        for family, message in (("Bloom", "neither a rotary embedding"), ("GPTJ", "neither a rotary embedding")):
            model = tiny(family)
            kind = model.config._attn_implementation
            with self.subTest(family), self.assertRaisesRegex(TraceError, message):
                traced_call(model, self.path("a.h5"))
            self.assertEqual(model.config._attn_implementation, kind)

    @unittest.skipUnless(transformers.__version__ in README.read_text(), "the table is of another transformers")
    def test_the_table_says_what_happens(self):
        table = README.read_text().split(BEGIN)[1].split(END)[0].split("\n\n")[0]
        rows = re.findall(r"^\| (.*) \| ([\w, ]+) \|$", table, re.MULTILINE)[1:]
        told = {family: said for said, families in rows for family in families.split(", ")}
        self.assertEqual(set(told), set(FAMILIES))
        self.assertGreaterEqual(list(told.values()).count("recorded"), 15)
        for family in "Qwen3", "Phi", "Gemma2", "Gemma3", "GPTNeoX", "OPT", "Llama4":
            self.assertEqual(outcome(family, self.folder), told[family])


class Sessions(HookTest):
    """trace() around generate() and plain calls."""

    def test_generate_is_traced_and_unchanged(self):
        plain = self.generate(self.ids, 9)
        with self.tracing("g.h5"):
            self.assertEqual(self.generate(self.ids, 9), plain)
        found = self.read("g.h5")
        # generate() never runs the last token it chooses.
        self.assertEqual(found["tokens/id"][...].tolist(), plain[:-1])
        native = self.native(SAMPLE / "model", self.ids, "n.h5", "--max-new-tokens", 8, "--elem", "f32")
        self.compare(found, native, 1e-5)
        for name in "tokens/segment", "tokens/flags", "segments/phase", "passes/q_len", "passes/past_len":
            np.testing.assert_array_equal(found[name][...], native[name][...], name)
        np.testing.assert_allclose(found["tokens/logprob"][...], native["tokens/logprob"][...], atol=1e-4)

    def test_without_a_cache_every_row_is_stored_once(self):
        with self.tracing("cache.h5"):
            self.generate(self.ids[:60], 5)
        with self.tracing("none.h5"):
            self.generate(self.ids[:60], 5, use_cache=False)
        self.compare(self.read("none.h5"), self.read("cache.h5"), 1e-5)

    def test_whole_and_chunked_prompts_agree(self):
        with self.tracing("whole.h5"), torch.no_grad():
            self.model(torch.tensor([self.ids[:90]]))
        with self.tracing("chunks.h5") as session:
            session.describe_prompt([Note() for _ in self.ids[:90]])
            Generator(self.model, Sampling(), 32, []).prefill(self.ids[:90])
        chunks = self.read("chunks.h5")
        self.assertEqual(chunks["passes/q_len"][...].tolist(), [32, 32, 26])
        self.compare(chunks, self.read("whole.h5"), 1e-6)

    def turns(self, name, **options):
        """Runs two turns; the second prompt begins with the conversation so far. Returns the tokens of the
        conversation."""
        cache = transformers.DynamicCache(config=self.model.config) if options.pop("same_cache") else None
        keep = {} if cache is None else {"past_key_values": cache}
        with self.tracing(name, **options):
            said = self.generate(self.ids[:50], 4, **keep)
            return self.generate(said + [7, 8, 9], 4, **keep)

    def test_turns(self):
        for same_cache in True, False:
            with self.subTest(same_cache=same_cache):
                said = self.turns("turns.h5", same_cache=same_cache)
                found = self.read("turns.h5")
                self.assertEqual(found["tokens/id"][...].tolist(), said[:-1])
                self.assertEqual(found["segments/count"][...].tolist(), [50, 4, 3, 3])
                self.assertEqual(found["segments/parent"][...].tolist(), [-1, 0, 1, 2])
                self.assertEqual(found["segments/phase"][...].tolist(), [0, 1, 0, 1])
                self.assertEqual(found["segments/turn"][...].tolist(), [0, 0, 1, 1])
                native = self.native(SAMPLE / "model", said[:-1], "n.h5", "--max-new-tokens", 0, "--elem", "f32")
                self.compare(found, native, 1e-5)

    def test_two_prompts_share_their_prefix(self):
        """The second prompt branches off the first after 30 tokens, inside a segment and a call."""
        first, second = self.ids[:50], self.ids[:30] + [5, 6, 7]
        with self.tracing("shared.h5"), torch.no_grad():
            for ids in first, second, first:  # the third adds nothing
                self.model(torch.tensor([ids]))
        found = self.read("shared.h5")
        self.assertEqual(found["tokens/id"][...].tolist(), first + second[30:])
        self.assertEqual(found["segments/count"][...].tolist(), [30, 20, 3])
        self.assertEqual(found["segments/parent"][...].tolist(), [-1, 0, 0])
        self.assertEqual(found["passes/q_len"][...].tolist(), [30, 20, 3])
        with self.tracing("alone.h5"), torch.no_grad():
            self.model(torch.tensor([second]))
        alone, path = self.read("alone.h5"), [*range(30), 50, 51, 52]
        for layer in range(4):
            for name in "q", "k", "v":
                self.assertLessEqual(difference(tensor(found, layer, name)[:, path], tensor(alone, layer, name)), 1e-6)

    def test_copied_and_cut_caches_go_on_where_they_are(self):
        cache = transformers.DynamicCache(config=self.model.config)
        with self.tracing("cut.h5"), torch.no_grad():
            self.model(torch.tensor([self.ids[:20]]), past_key_values=cache)
            other = copy.deepcopy(cache)
            self.model(torch.tensor([[5, 6]]), past_key_values=cache)
            other.crop(-8)
            self.model(torch.tensor([[7, 8, 9]]), past_key_values=other)
        found = self.read("cut.h5")
        self.assertEqual(found["segments/count"][...].tolist(), [12, 10, 3])
        self.assertEqual(found["segments/parent"][...].tolist(), [-1, 0, 0])
        self.assertFalse(any("kvsim" in name for name in vars(cache)))

    def test_sampled_branches(self):
        """Draws differ: the prompt is stored once, and each answer from its first different token on."""
        said = []
        with self.tracing("draws.h5"):
            for seed in range(3):
                torch.manual_seed(seed)
                said.append(self.model.generate(torch.tensor([self.ids[:40]]), do_sample=True, temperature=2.0, top_k=50,
                                                attention_mask=torch.ones(1, 40, dtype=torch.long), pad_token_id=1,
                                                max_new_tokens=6, min_new_tokens=6)[0].tolist()[:-1])
        found = self.read("draws.h5")
        self.assertEqual(found["capture"].attrs["sampling"], b"temperature 2, top-k 50")
        distinct = {tuple(ids[:n]) for ids in said for n in range(1, len(ids) + 1)}
        self.assertEqual(found.attrs["n_tokens"], len(distinct))
        logprob = found["tokens/logprob"][...]
        np.testing.assert_array_equal(np.isnan(logprob), found["tokens/flags"][...] & 4 == 0)

    def test_chat(self):
        """Roles, turns and markup of a conversation; everything except the contents is the template's own text."""
        tokenizer = copy.deepcopy(self.tokenizer)
        tokenizer.chat_template = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
                                   "{% if add_generation_prompt %}[assistant] {% endif %}")
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 and 4?"},
                    {"role": "assistant", "content": "It is 7."}, {"role": "user", "content": "And 5?"}]
        ids, notes, known = tokenize_chat(tokenizer, messages, "chat.json")
        self.assertEqual(known, 2)
        with trace(self.model, self.path("chat.h5"), tokenizer) as session:
            session.describe_prompt(notes, known)
            generator = Generator(self.model, Sampling(), 512, [])
            generator.decode(*generator.prefill(ids), 2)
        found = self.read("chat.h5")
        self.assertEqual(found["segments/role"][...].tolist(), [1, 2, 3, 2, 3, 3])
        self.assertEqual(found["segments/turn"][...].tolist(), [0, 0, 0, 1, 1, 1])
        offset, text = found["text/offset"][...], found["text/bytes"][...].tobytes()
        flags, begin, count = found["tokens/flags"][...], found["segments/begin"][...], found["segments/count"][...]
        said = [b"".join(text[offset[t]:offset[t + 1]] for t in range(b, b + c)) for b, c in zip(begin, count)]
        self.assertEqual(b"".join(said[:5]).decode(), tokenizer.apply_chat_template(messages, tokenize=False,
                                                                                    add_generation_prompt=True))
        words = b"".join(text[offset[t]:offset[t + 1]] for t in range(begin[5]) if not flags[t] & 2).decode()
        self.assertEqual(words.split(), "Be brief. What is 3 and 4? It is 7. And 5?".split())

    def test_marks(self):
        ids = self.tokenizer("The code of the red safe is 4721. Open the red safe.")["input_ids"]
        with self.tracing("marks.h5", evidence=["code of the red", "0"], question="Open the red safe.", context="1:4"):
            self.generate(ids, 3)
        found = self.read("marks.h5")
        flags, known = found["tokens/flags"][...], int(found["tokens"].attrs["flags_known"])
        offset, data = found["text/offset"][...], found["text/bytes"][...].tobytes()
        self.assertEqual(known & 0b111000, 0b111000)

        def spelled(bit):
            return b"".join(data[offset[t]:offset[t + 1]] for t in np.flatnonzero(flags & bit)).decode()

        self.assertEqual(np.flatnonzero(flags & 16).tolist(), [1, 2, 3])
        self.assertIn("code of the red", spelled(32))
        self.assertTrue(flags[0] & 32)
        self.assertEqual(spelled(8).strip(), "Open the red safe.")
        with self.tracing("plain.h5"):
            self.generate(ids, 3)
        self.assertEqual(int(self.read("plain.h5")["tokens"].attrs["flags_known"]) & 0b111000, 0)

    def test_marks_that_cannot_be_put_do_not_cost_the_run(self):
        for wrong, message in (({"evidence": "blue safe"}, "evidence: \"blue safe\" is not in the prompt"),
                               ({"evidence": "1", "context": "13"}, "context: token 13 belongs to an answer")):
            with self.subTest(message):
                with self.assertRaisesRegex(SelectionError, message + "[^$]*is written, without marks"), \
                        self.tracing("unmarked.h5", **wrong):
                    self.generate(self.ids[:12], 4)
                self.assertEqual(int(self.read("unmarked.h5")["tokens"].attrs["flags_known"]) & 0b111000, 0)
        with self.assertRaisesRegex(SelectionError, "no tokenizer says"):
            trace(self.model, self.path("none.h5"), evidence="safe")
        with trace(self.model, self.path("none.h5"), evidence="2:4", overwrite=True):
            self.generate(self.ids[:12], 2)
        self.assertEqual(np.flatnonzero(self.read("none.h5")["tokens/flags"][...] & 32).tolist(), [2, 3])

    def test_the_model_is_as_it_was(self):
        def state():
            return (self.model.config._attn_implementation, self.model.model.config._attn_implementation,
                    "generate" in vars(self.model), len(self.model.model._forward_pre_hooks),
                    len(self.model.model._forward_hooks), len(self.model._forward_hooks))

        before = state()
        with self.tracing("x.h5"):
            self.generate(self.ids[:20], 2)
            self.assertNotEqual(state(), before)
        self.assertEqual(state(), before)
        os.unlink(self.path("x.h5"))
        with self.assertRaises(ZeroDivisionError), self.tracing("x.h5"):
            self.generate(self.ids[:20], 2)
            1 / 0
        self.assertEqual(state(), before)
        self.assertEqual(list(self.folder.glob("x.h5*")), [])
        eager = load(SAMPLE / "model", kind="eager")
        with trace(eager, self.path("x.h5")), torch.no_grad():
            eager(torch.tensor([[1, 2, 3]]))
        self.assertEqual(eager.config._attn_implementation, "eager")

    def test_refusals(self):
        ids, ones = torch.tensor([self.ids[:12]]), torch.ones(1, 12, dtype=torch.long)
        padded, two = ones.clone(), ids.repeat(2, 1)
        padded[0, 0] = 0
        outside = transformers.DynamicCache(config=self.model.config)
        with torch.no_grad():
            self.model(ids, past_key_values=outside)
        static = transformers.StaticCache(config=self.model.config, max_cache_len=32)
        greedy = {"attention_mask": ones, "max_new_tokens": 2, "pad_token_id": 1}
        cases = {
            "one sequence at a time": lambda: self.model.generate(ids, num_beams=2, **greedy),
            "num_return_sequences=3": lambda: self.model.generate(ids, do_sample=True, num_return_sequences=3, **greedy),
            "assistant_model": lambda: self.model.generate(ids, assistant_model=self.model, **greedy),
            "prompt_lookup": lambda: self.model.generate(ids, prompt_lookup_num_tokens=3, **greedy),
            "cache_implementation=\"static\"": lambda: self.model.generate(ids, cache_implementation="static", **greedy),
            "StaticLayer": lambda: self.model(ids, past_key_values=static),
            "a batch of 2": lambda: self.model(two),
            "padded": lambda: self.model(ids, attention_mask=padded),
            "own attention mask": lambda: self.model(ids, attention_mask=torch.zeros(1, 1, 12, 12)),
            "position_ids are not": lambda: self.model(ids, position_ids=torch.arange(3, 15)[None]),
            "not their embeddings": lambda: self.model(inputs_embeds=torch.zeros(1, 3, 256)),
            "did not run inside": lambda: self.model(torch.tensor([[5]]), past_key_values=outside),
            "nothing to trace": lambda: None,
        }
        for message, call in cases.items():
            with self.subTest(message), torch.no_grad():
                with self.assertRaisesRegex(TraceError, message), self.tracing("r.h5"):
                    call()
                self.assertEqual(list(self.folder.glob("r.h5*")), [])
        for message, model in {"training mode": load(SAMPLE / "model").train(), "is compiled": torch.compile(self.model),
                               "not a model": torch.nn.Linear(2, 2).eval()}.items():
            with self.subTest(message), self.assertRaisesRegex(TraceError, message), trace(model, self.path("r.h5")):
                pass
        with self.tracing("r.h5"), torch.no_grad():
            self.model(ids)
            with self.assertRaisesRegex(TraceError, "traced already"), self.tracing("s.h5"):
                pass
        for option in {"queries": "some"}, {"queries": "window:0"}, {"attention": "all"}:
            with self.subTest(option), self.assertRaisesRegex(TraceError, "not a choice"):
                self.tracing("r.h5", **option)

    def test_a_call_that_fails_midway_ends_the_trace(self):
        hook = self.model.model.layers[2].register_forward_hook(lambda *_: 1 / 0)
        try:
            with self.assertRaisesRegex(TraceError, "failed midway"), self.tracing("m.h5"):
                try:
                    self.model(torch.tensor([[1, 2]]))
                except ZeroDivisionError:
                    pass
        finally:
            hook.remove()

    def test_a_disk_that_fails_ends_generate(self):
        """The writing thread is not the computing one, which must raise its error."""
        def fail(*_):
            raise OSError("no space left")

        with self.assertRaisesRegex(OSError, "no space left"), self.tracing("d.h5") as session:
            session._writer.append = fail
            self.generate(self.ids[:20], 3)
        self.assertEqual(list(self.folder.glob("d.h5*")), [])
        with self.assertRaisesRegex(TraceError, "folder does not exist"), trace(self.model, "/nowhere/x.h5"):
            pass


if __name__ == "__main__":
    main()
