#!/usr/bin/env python3
"""Tests traces/format/read_trace.py: it reads traces without kvsim, with the same content.

Usage: test_trace_h5py.py KVSIM SOURCE_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

KVSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "traces" / "format"))
from read_trace import attention_row, path_of, read_trace, visible_means  # noqa: E402

SMALL = ["--prompt-tokens", "40", "--decode", "6", "--layers", "2", "--kv-heads", "2", "--group", "3", "--head-dim", "16"]


def kvsim(*arguments):
    done = subprocess.run([KVSIM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kvsim {' '.join(map(str, arguments))}\n{done.stderr}"
    return done.stdout


def round_to_bf16(values):
    """Rounds to nearest even, in float32."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


class ReadWithoutKvsim(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return pathlib.Path(self.scratch.name) / name

    def generate(self, elem):
        path = self.path(elem + ".h5")
        kvsim("trace", "generate", *SMALL, "--elem", elem, "-o", path)
        return path

    def test_shapes_and_header(self):
        trace = read_trace(self.generate("f32"))
        self.assertEqual(trace["model"]["n_layers"], 2)
        self.assertEqual(trace["model"]["attn_scale"], 0.25)
        self.assertEqual(len(trace["layers"]), 2)
        for layer in trace["layers"]:
            self.assertEqual(layer["q"].shape, (6, 46, 16))
            self.assertEqual(layer["k"].shape, (2, 46, 16))
            self.assertEqual(layer["v"].shape, (2, 46, 16))
            self.assertEqual(layer["window"], -1)
            self.assertIsNone(layer["wo"])
        self.assertEqual(trace["tokens"]["segment"].tolist(), [0] * 40 + [1] * 6)
        self.assertEqual(trace["segments"]["parent"].tolist(), [-1, 0])
        self.assertEqual(path_of(trace, 42).tolist(), list(range(43)))

    def test_element_types_hold_the_same_numbers(self):
        exact = read_trace(self.generate("f32"))
        bf16, f16 = read_trace(self.generate("bf16")), read_trace(self.generate("f16"))
        for layer in range(2):
            for name in ("q", "k", "v"):
                full = exact["layers"][layer][name]
                np.testing.assert_array_equal(bf16["layers"][layer][name], round_to_bf16(full))
                np.testing.assert_array_equal(f16["layers"][layer][name], full.astype(np.float16).astype(np.float32))

    def test_types_as_h5py_names_them(self):
        for elem, dtype in (("f32", "float32"), ("f16", "float16"), ("bf16", "float32")):
            with h5py.File(self.generate(elem), "r") as file:
                dataset = file["layers/0001/k"]
                self.assertEqual(dataset.dtype, np.dtype(dtype))
                self.assertEqual(dataset.attrs["elem"], elem.encode())
                self.assertEqual(dataset.id.get_type().get_size(), 4 if elem == "f32" else 2)
                self.assertTrue(dataset.fletcher32)

    def test_bf16_words_written_by_h5py_are_read_by_kvsim(self):
        """Writes the same tensors as u16 words, which h5py can write."""
        path = self.generate("bf16")
        before = kvsim("trace", "check", path)
        with h5py.File(path, "r+") as file:
            for layer in range(2):
                for name in ("q", "k", "v"):
                    dataset = file[f"layers/{layer:04d}/{name}"]
                    words = np.empty(dataset.shape, np.uint16)
                    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, words, mtype=dataset.id.get_type())
                    sha256 = dataset.attrs["sha256"]
                    del file[f"layers/{layer:04d}/{name}"]
                    rewritten = file.create_dataset(f"layers/{layer:04d}/{name}", data=words)
                    for attribute, text in (("elem", b"bf16"), ("sha256", sha256)):
                        rewritten.attrs.create(attribute, np.bytes_(text))
        self.assertEqual(kvsim("trace", "check", path), before)

    def test_attention_loss_recomputed_from_the_file(self):
        """Compares kvsim's loss of a recency window with rows computed here with numpy."""
        path = self.generate("f32")
        trace = read_trace(path)
        budget, prompt, total = 10, 40, 46
        rows = json.loads(kvsim("replay", path, "--policy", "window", "--budget", budget, "--per", "head",
                                "--format", "json"))["results"]
        self.assertEqual(len(rows), 4)
        for row in rows:
            losses = []
            for query_head in range(3 * row["head"], 3 * row["head"] + 3):
                for position in range(prompt - 1, total):  # the last prompt row is measured again, with its own key
                    p = attention_row(trace, row["layer"], query_head, position)
                    self.assertAlmostEqual(p.sum(), 1, places=12)
                    losses.append(1 - p[-budget:].sum())
            self.assertAlmostEqual(row["attention_loss"], np.mean(losses), delta=1e-5)

    def marked_run(self):
        """Captures the shipped model on a question about a context that contains evidence."""
        model = SOURCE / "traces/sample/model"
        items, path = self.path("items.jsonl"), self.path("item.h5")
        kvsim("workload", "needle-multi-key", "--context", 140, "--facts", 3, "--tokenizer", model, "-o", items)
        kvsim("capture", "--model", model, "--workload", items, "--item", json.loads(items.read_text())["id"], "--max-new-tokens", 4,
              "--ignore-eos", "--elem", "f32", "--output-weights", "--quiet", "-o", path)
        return path

    def held_at(self, cell, lane, step, own):
        """Positions attended at a step, from stored decisions."""
        mine = slice(*(int(at) for at in cell["lane_ptr"][lane:lane + 2]))
        position, first, last = (cell[name][mine].astype(int) for name in ("position", "first_step", "last_step"))
        held = set(position[(first <= step) & (step < last)].tolist())
        return np.array(sorted(held | {own} if step == 0 else held))

    def test_evidence_peaks_and_outputs_recomputed_from_the_file_and_decisions(self):
        path = self.marked_run()
        trace = read_trace(path)
        model, flags = trace["model"], trace["tokens"]["flags"]
        n_layers, n_q, n_kv = model["n_layers"], model["n_q_heads"], model["n_kv_heads"]
        group, total = n_q // n_kv, len(flags)
        evidence, context = np.flatnonzero(flags & 32), np.flatnonzero(flags & 16)
        generated = np.flatnonzero(flags & 4)
        cuts = {"prompt": int(generated[0]), "question": int(context[-1]) + 1}
        self.assertTrue(0 < len(evidence) < cuts["question"] < cuts["prompt"])
        for cut, prompt in cuts.items():
            begin = prompt - 1 if cut == "prompt" else prompt
            policies = [part for policy in ("h2o", "streaming_llm", "snapkv(window=8)") for part in ("--policy", policy)]
            kept = self.path(f"{cut}-kept.h5")
            rows = json.loads(kvsim("replay", path, *policies, "--budget", "25%", "--cut", cut, "--decisions", kept, "--format", "json",
                                    "--quiet"))["results"]
            heads = json.loads(kvsim("replay", path, *policies, "--budget", "25%", "--cut", cut, "--per", "head", "--format", "json",
                                     "--quiet"))["results"]
            attention = {(layer, head, t): attention_row(trace, layer, head, t)
                         for layer in range(n_layers) for head in range(n_q) for t in range(begin, total)}
            with h5py.File(kept) as file:
                for index, row in enumerate(rows):
                    cell = {name: data[...] for name, data in file[f"cells/{index:04d}"].items()}
                    mine = [head for head in heads if head["policy"] == row["policy"]]
                    self.check_cell(trace, cell, row, mine, attention, evidence, prompt, begin, group)

    def check_cell(self, trace, cell, row, heads, attention, evidence, prompt, begin, group):
        model, total = trace["model"], len(trace["tokens"]["flags"])
        n_layers, n_kv = model["n_layers"], model["n_kv_heads"]
        paid = np.zeros(2)   # attention on evidence: all, lost
        peak = np.zeros(2)   # attention on peaks
        losses, errors, cosines, projected, held_last, prompt_last, directions = [], [], [], [], [], [], []
        for layer in range(n_layers):
            values = trace["layers"][layer]["v"].astype(np.float64)
            weights = trace["layers"][layer]["wo"].astype(np.float64)
            outputs = np.zeros((2, total - begin, weights.shape[2]))
            for lane_head in range(n_kv):
                lane = layer * n_kv + lane_head
                lane_paid, lane_errors, lane_losses = np.zeros(2), [], []
                for t in range(begin, total):
                    held = self.held_at(cell, lane, t - prompt + 1, t)
                    dropped = np.setdiff1d(np.arange(t + 1), held)
                    mean = np.mean([attention[layer, lane_head * group + g, t] for g in range(group)], axis=0)
                    lane_losses.append(mean[dropped].sum())
                    lane_paid += mean[evidence].sum(), mean[np.intersect1d(evidence, dropped)].sum()
                    for g in range(group):
                        head = lane_head * group + g
                        p = attention[layer, head, t]
                        far = np.arange(4, min(t + 1, prompt - 32))
                        if len(far) and p[far].max() >= 0.5:
                            counted = far[p[far] >= 0.5 * p[far].max()]
                            peak += p[counted].sum(), p[np.intersect1d(counted, dropped)].sum()
                        whole = p @ values[lane_head, :t + 1]
                        rest = p[held] @ values[lane_head, held] / p[held].sum()
                        lane_errors.append(np.linalg.norm(rest - whole) / np.linalg.norm(whole))
                        gone = p[dropped].sum()
                        if gone > 0:
                            left = p[dropped] @ values[lane_head, dropped] / gone
                            directions.append((np.linalg.norm(left - rest) / np.linalg.norm(whole),
                                               left @ rest / np.linalg.norm(left) / np.linalg.norm(rest), min(gone / 0.01, 1)))
                        cosines.append(rest @ whole / np.linalg.norm(rest) / np.linalg.norm(whole))
                        outputs[0, t - begin] += whole @ weights[head]
                        outputs[1, t - begin] += rest @ weights[head]
                paid += lane_paid
                losses.append(np.mean(lane_losses))
                errors.append(np.mean(lane_errors))
                held_last.append(np.isin(evidence, held))
                prompt_last.append(np.isin(np.arange(prompt), held))
                self.assertAlmostEqual(heads[lane]["evidence_loss"], lane_paid[1] / lane_paid[0], delta=1e-5)
                self.assertAlmostEqual(heads[lane]["output_error"], errors[-1], delta=1e-5)
                self.assertAlmostEqual(heads[lane]["attention_loss"], losses[-1], delta=1e-5)
            apart = np.linalg.norm(outputs[1] - outputs[0], axis=1) / np.linalg.norm(outputs[0], axis=1)
            projected.append(apart.mean())
        self.assertAlmostEqual(row["evidence_loss"], paid[1] / paid[0], delta=1e-5)
        self.assertAlmostEqual(row["evidence_held"], np.mean(held_last), delta=1e-12)
        for key, last in ("evidence", held_last), ("prompt", prompt_last):
            in_layers = np.any(np.reshape(last, (n_layers, n_kv, -1)), axis=1)
            self.assertAlmostEqual(row[f"{key}_nowhere_in_layer"], np.mean(~in_layers), delta=1e-12)
            self.assertAlmostEqual(row[f"{key}_nowhere"], np.mean(~np.any(in_layers, axis=0)), delta=1e-12)
        self.assertGreater(len(directions), 0)
        apart, cosine, weight = np.transpose(directions)
        self.assertAlmostEqual(row["direction_error"], np.average(apart, weights=weight), delta=1e-4)
        self.assertAlmostEqual(row["direction_cosine"], np.average(cosine, weights=weight), delta=1e-4)
        self.assertGreater(peak[0], 0)
        self.assertAlmostEqual(row["peak_loss"], peak[1] / peak[0], delta=1e-5)
        self.assertAlmostEqual(row["attention_loss"], np.mean(losses), delta=1e-5)
        self.assertAlmostEqual(row["output_error"], np.mean(errors), delta=1e-5)
        self.assertAlmostEqual(row["output_cosine"], np.mean(cosines), delta=1e-5)
        self.assertAlmostEqual(row["projected_output_error"], np.mean(projected), delta=1e-5)

    def test_stored_attention_rows_follow_from_queries_and_keys(self):
        """Uses a captured run of the shipped model, with a window of queries and of rows."""
        ids = self.path("ids.json")
        ids.write_text(json.dumps([int(i) for i in np.random.default_rng(5).integers(20, 400, 50)]))
        path = self.path("run.h5")
        kvsim("capture", "--model", SOURCE / "traces/sample/model", "--tokens", ids, "--max-new-tokens", 4,
              "--ignore-eos", "--queries", "window:8", "--attention", "window:3", "--elem", "f32",
              "--output-weights", "--quiet", "-o", path)
        trace = read_trace(path)
        model = trace["model"]
        for layer in trace["layers"]:
            self.assertEqual(layer["wo"].shape, (model["n_q_heads"], model["v_head_dim"], model["hidden_size"]))
            self.assertGreater(np.abs(layer["wo"]).max(), 0)
        compared = 0
        with h5py.File(path, "r") as file:
            for layer, tensors in enumerate(trace["layers"]):
                rows = file[f"layers/{layer:04d}/rows"]
                ptr = rows["ptr"][...]
                for i, token in enumerate(rows["token"][...]):
                    query_row = int(np.searchsorted(tensors["q_token"], token))
                    self.assertEqual(tensors["q_token"][query_row], token)
                    for head in range(tensors["q"].shape[0]):
                        expected = attention_row(trace, layer, head, query_row)[rows["first_key"][i]:]
                        stored = rows["p"][head, ptr[i]:ptr[i + 1]]
                        np.testing.assert_allclose(stored, expected, rtol=2e-5, atol=1e-7)
                        compared += 1
        self.assertGreater(compared, 50)

    def test_column_statistics_are_sums_over_the_rows_of_the_prompt(self):
        prompt = self.path("prompt.txt")
        prompt.write_text(" ".join(str(5 + 7 * i % 200) for i in range(30)))
        kvsim("capture", "--model", SOURCE / "traces/sample/model", "--tokens", prompt, "--max-new-tokens", 2, "--elem", "f32",
              "--column-statistics", "--quiet", "-o", self.path("columns.h5"))
        trace = read_trace(self.path("columns.h5"))
        self.assertIsNone(read_trace(self.generate("f32"))["layers"][0]["column"])
        for layer, head in ((0, 0), (3, 5)):
            rows = np.zeros((30, 30))
            for i in range(30):
                rows[i, :i + 1] = attention_row(trace, layer, head, i)
            column = trace["layers"][layer]["column"]
            np.testing.assert_allclose(column["sum"][head], rows.sum(axis=0), rtol=1e-5)
            np.testing.assert_allclose(column["sum_squares"][head], (rows**2).sum(axis=0), rtol=1e-5)
            np.testing.assert_allclose(visible_means(trace, layer)[head], rows.sum(axis=0) / np.arange(30, 0, -1), rtol=1e-5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
