#!/usr/bin/env python3
"""Tests KVzip's second pass: what capture writes, against rows of one run of prompt and pass together; replay and the closed loop by it.

Usage: test_second_pass.py KVSIM SOURCE_DIR
"""
import csv
import io
import json

import h5py
import kvsim_command
import numpy as np
from kvsim_command import SOURCE, CommandTest

MODEL = SOURCE / "traces" / "sample" / "model"


class SecondPass(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for words in (["workload", "needle", "--context", "120", "--count", "1", "--tokenizer", MODEL, "-o", "w.jsonl"],
                      ["capture", "--model", MODEL, "--workload", "w.jsonl", "--max-new-tokens", "4", "--elem", "f32",
                       "--output-weights", "--second-pass", "pass.h5", "--second-pass-queries", "-o", "run.h5", "--quiet"]):
            made = cls.kvsim(*words)
            assert made.returncode == 0, made.stderr

    def test_the_pass_against_a_run_of_prompt_and_pass_together(self):
        """One chunk holds the whole context, so that its rows count as they are in one run of everything."""
        with h5py.File(self.folder / "run.h5") as file:
            ids = file["tokens/id"][...].tolist()
        with h5py.File(self.folder / "pass.h5") as file:
            stored = {int(n): file[f"{n}/attention"][...] for n in file}
            queries = {int(n): file[f"{n}/queries"][...] for n in file}
        self.assertEqual(len(stored), 2)  # before the question, and with it
        self.assertEqual(max(stored), len(ids) - 4)
        asked = self.request_ids()
        for n, found in stored.items():
            (self.folder / "all.json").write_text(json.dumps(ids[:n] + asked + ids[:n]))
            self.ok("capture", "--model", MODEL, "--tokens", "all.json", "--max-new-tokens", "1", "--elem", "f32", "--attention", "full",
                    "-o", "all.h5", "--overwrite", "--quiet")
            with h5py.File(self.folder / "all.h5") as file:
                for layer in range(found.shape[0]):
                    rows = file[f"layers/{layer:04d}/rows"]
                    p, begins = rows["p"][...], rows["ptr"][...].astype(int)
                    largest = np.max([p[:, begins[t]:begins[t] + n] for t in range(n, 2 * n + len(asked))], axis=0)
                    np.testing.assert_allclose(found[layer].reshape(largest.shape), largest, atol=2e-5)
                    own = file[f"layers/{layer:04d}/q"][:, n + len(asked):2 * n + len(asked)]
                    np.testing.assert_allclose(queries[n][layer].reshape(own.shape), own, atol=1e-4)

    def request_ids(self):
        """Ids of the request and of the line break behind it, each encoded by itself."""
        out = []
        for text in "\n\nRepeat the previous context exactly.", "\n":
            (self.folder / "text.txt").write_text(text)
            self.ok("capture", "--model", MODEL, "--prompt", "text.txt", "--max-new-tokens", "1", "-o", "text.h5", "--overwrite", "--quiet")
            with h5py.File(self.folder / "text.h5") as file:
                ids, special = file["tokens/id"][...].tolist(), file["tokens/flags"][...]
            out += [one for one, flags in zip(ids[:-1], special) if not flags & 1]
        return out

    def kept(self, name, *words):
        """Positions that each policy holds after the prompt, lane after lane."""
        self.ok(*words, "--budget", "25%", "--decisions", name, "--overwrite", "--quiet")
        with h5py.File(self.folder / name) as file:
            return [cell["position"][...][cell["first_step"][...] == 0].tolist() for cell in file["cells"].values()]

    def test_replay_reads_the_file_and_evaluate_makes_the_pass(self):
        policies = ["--policy", "kvzip(file=pass.h5)+one_threshold", "--policy", "kvzip(file=pass.h5,plus=true)",
                    "--policy", "matching_pursuit(queries=pass.h5)+fitted_values(queries=pass.h5)"]
        own = ["--policy", "kvzip+one_threshold", "--policy", "kvzip(plus=true)",
               "--policy", "matching_pursuit(queries=run)+fitted_values(queries=run)"]
        for cut in "prompt", "question":
            with self.subTest(cut):
                replayed = self.kept("a.h5", "replay", "run.h5", *policies, "--cut", cut)
                self.assertEqual(replayed, self.kept("b.h5", "evaluate", "--model", MODEL, "--workload", "w.jsonl", *own, "--cut", cut,
                                                     "--elem", "f32", "--mode", "greedy", "--max-new-tokens", "2"))
                self.assertNotEqual(*replayed[:2])
                # Not what the queries of the prompt itself choose.
                self.assertNotEqual(replayed[2:], self.kept("c.h5", "replay", "run.h5", "--policy", "matching_pursuit", "--cut", cut))

    def test_models_with_windows_have_no_second_pass(self):
        """Their other cells are answered."""
        windowed = self.folder / "windowed"
        windowed.mkdir()
        for file in MODEL.iterdir():
            (windowed / file.name).symlink_to(file)
        (windowed / "config.json").unlink()
        (windowed / "config.json").write_text(json.dumps({**json.loads((MODEL / "config.json").read_text()), "model_type": "mistral",
                                                          "architectures": ["MistralForCausalLM"], "sliding_window": 32}))
        rows = self.evaluated("--model", windowed, "--policy", "kvzip", "--policy", "tova")
        self.assertIn("tova", [row["policy"] for row in rows if not row["skipped"]])
        self.assertRegex(" ".join(row["skipped"] for row in rows if row["policy"] == "kvzip"), "kvzip: needs a second pass")

    def evaluated(self, *words):
        text = self.ok("evaluate", "--workload", "w.jsonl", "--budget", "25%", "--max-new-tokens", "2", "--mode", "greedy", "--format", "csv",
                       "--quiet", *words)
        return list(csv.DictReader(io.StringIO(text)))

    def test_what_is_not_there_is_said(self):
        said = self.kvsim("replay", "run.h5", "--policy", "kvzip", "--policy", "h2o", "--budget", "25%", "-o",
                          "some.csv").stderr
        self.assertRegex(said, r"skipped: kvzip at 25%: [^\n]*needs a second pass")
        self.assertIn("--second-pass", said)
        said = self.kvsim("replay", "run.h5", "--policy", "tova+fitted_values(queries=run)", "--policy", "h2o", "--budget", "25%", "-o",
                          "some.csv", "--overwrite").stderr
        self.assertRegex(said, r"skipped: tova\+fitted_values[^\n]*needs a second pass")
        # A file of each trace: what has none is left out, and nothing else.
        (self.folder / "run.pass.h5").symlink_to("pass.h5")
        (self.folder / "other.h5").symlink_to("run.h5")
        for policy in "kvzip(file={trace}.pass.h5)", "reference_attention(queries={trace}.pass.h5)":
            said = self.kvsim("replay", "run.h5", "other.h5", "--policy", policy, "--policy", "tova", "--budget", "25%", "-o", "some.csv",
                              "--overwrite").stderr
            self.assertEqual(said.count("skipped: "), 1, said)
            with open(self.folder / "some.csv", newline="") as file:
                measured = {(row["trace"], row["policy"].split("(")[0]) for row in csv.DictReader(file) if row["attention_loss"]}
            self.assertEqual(len(measured), 3)


if __name__ == "__main__":
    kvsim_command.main()
