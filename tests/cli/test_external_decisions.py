#!/usr/bin/env python3
"""Tests the replay of scores and masks that another program stored."""
import csv
import io
import json

import h5py
import kvsim_command
import numpy as np
from kvsim_command import CommandTest

LAYERS, HEADS = 3, 2


class ExternalDecisions(CommandTest):
    def store(self, name, dataset, values):
        with h5py.File(self.folder / name, "w") as f:
            f[dataset] = values

    def keys(self):
        """Keys [layers, heads, tokens, dim]."""
        with h5py.File(self.folder / "t.h5") as f:
            return np.stack([f[f"layers/{layer:04d}/k"][()] for layer in range(LAYERS)])

    def results(self, policy, *more):
        """Rows without the columns that name the policy."""
        rows = self.rows("t.h5", "--policy", policy, "--budget", "7,25%", "--per", "head", *more)
        return [{key: value for key, value in row.items() if key not in ("policy", "params")} for row in rows]

    def test_scores_computed_elsewhere_decide_as_if_computed_here(self):
        norms = -np.linalg.norm(self.keys().astype(np.float64), axis=-1)
        self.store("norms.h5", "scores", norms.astype(np.float32))
        self.assertEqual(self.results("external_scores(file=norms.h5)"), self.results("l2_norm"))
        self.assertEqual(self.results("external_scores(file=norms.h5,sinks=2,window=3)"),
                         self.results("l2_norm(sinks=2,window=3)"))

    def test_scores_of_the_prompt_alone_append_what_follows(self):
        scores = np.tile(np.arange(self.prompt, dtype=np.float64), (LAYERS, HEADS, 1))
        self.store("study.h5", "learned/newest", scores)
        study = ["--policy", "external_scores(file=study.h5,dataset=learned/newest)", "--budget", "7"]
        self.ok("replay", "t.h5", *study, "--decisions", "kept.h5", "--overwrite")
        with h5py.File(self.folder / "kept.h5") as f:
            np.testing.assert_array_equal(f["cells/0000/position"][:7 + self.decode],
                                          np.arange(self.prompt - 7, self.prompt + self.decode))

    def test_a_mask_decides_what_is_kept_whatever_the_budget(self):
        mask = (np.random.default_rng(1).random((LAYERS, HEADS, self.prompt)) < 0.3).astype(np.uint8)
        self.store("gate.h5", "mask", mask)
        self.ok("replay", "t.h5", "--policy", "external_mask(file=gate.h5)", "--budget", "7", "--decisions", "gate.out.h5")
        with h5py.File(self.folder / "gate.out.h5") as f:
            cell = f["cells/0000"]
            for lane in range(LAYERS * HEADS):
                mine = slice(*cell["lane_ptr"][lane:lane + 2])
                kept = cell["position"][mine][cell["first_step"][mine] == 0]
                np.testing.assert_array_equal(kept, np.flatnonzero(mask[lane // HEADS, lane % HEADS]))

    def test_what_does_not_fit_is_refused(self):
        scores = np.zeros((LAYERS, HEADS, self.prompt), np.float32)
        self.store("other.h5", "scores", scores[:, :1])
        self.store("short.h5", "scores", scores[:, :, :50])
        self.store("long.h5", "scores", np.zeros((LAYERS, HEADS, 500), np.float32))
        self.store("half.h5", "mask", scores + np.float32(0.5))
        scores[1, 0, 9] = np.nan
        self.store("nan.h5", "scores", scores)
        for policy, parts in (("external_scores(file=other.h5)", ["other.h5:/scores", "has shape"]),
                              ("external_scores(file=short.h5)", ["short.h5:/scores", "50 positions", "96"]),
                              ("external_scores(file=long.h5)", ["long.h5:/scores", "500 positions", "108"]),
                              ("external_scores(file=nan.h5)", ["layer 1, KV head 0, position 9"]),
                              ("external_scores(file=none.h5)", ["none.h5"]),
                              ("external_scores(file=nan.h5,dataset=gone)", ["nan.h5:/gone", "missing"]),
                              ("external_mask(file=half.h5)", ["half.h5:/mask", "neither 0 nor 1"])):
            message = self.fails(3, "replay", "t.h5", "--policy", policy, "--budget", "7", "--quiet")
            for part in parts:
                self.assertIn(part, message)
        self.assertIn("needs file=", self.fails(2, "replay", "t.h5", "--policy", "external_scores", "--budget", "7"))

    def stored(self, policy):
        return self.rows("t.h5", "--policy", policy, "--budget", "100%", "--per", "head")

    def tokens(self, which):
        """Keys or values, [layers, heads, tokens, dim]."""
        with h5py.File(self.folder / "t.h5") as f:
            return np.stack([f[f"layers/{layer:04d}/{which}"][()] for layer in range(LAYERS)])

    def test_rows_from_a_file_are_stored_in_place_of_the_runs(self):
        keys, values = self.tokens("k"), self.tokens("v")
        with h5py.File(self.folder / "same.h5", "w") as f:
            f["keys"], f["values"] = keys, values
        with h5py.File(self.folder / "prompt.h5", "w") as f:
            f["keys"] = keys[:, :, :self.prompt]
            f["merged/values"] = values[:, :, :self.prompt] * 0
        exact = self.stored("full+scalar(bits=16)")
        same = self.stored("full+external_rows(file=same.h5)")
        for row, other in zip(exact, same):
            for key in ("output_error", "total_variation", "key_error", "value_error", "held_bytes"):
                self.assertEqual(row[key], other[key])
        for row in self.stored("full+external_rows(file=prompt.h5,values=merged/values)"):
            self.assertEqual(float(row["key_error"]), 0)
            self.assertGreater(float(row["value_error"]), 0.5)
        message = self.fails(3, "replay", "t.h5", "--policy", "full+external_rows(file=same.h5,keys=gone)", "--budget", "7", "--quiet")
        self.assertIn("same.h5:/gone", message)

    def test_maps_from_a_file_make_coordinates(self):
        dim = self.tokens("k").shape[-1]
        half, whole = np.eye(dim)[:dim // 2], np.eye(dim)
        for name, down in (("half.h5", half), ("whole.h5", whole)):
            with h5py.File(self.folder / name, "w") as f:
                for which in ("key", "value"):
                    f[f"{which}_down"] = np.tile(down, (LAYERS, HEADS, 1, 1))
                    f[f"{which}_up"] = np.tile(down.T, (LAYERS, HEADS, 1, 1))
        for row in self.stored("full+external_maps(file=whole.h5,keys=1,values=1)"):
            self.assertLess(float(row["key_error"]), 2**-10)  # coordinates are 16-bit floats
        # Half of the numbers are dropped: what is left of a head has their squares.
        keys = self.tokens("k").astype(np.float64)
        lost = np.sqrt((keys[..., dim // 2:]**2).sum((2, 3)) / (keys**2).sum((2, 3)))
        for row in self.stored("full+external_maps(file=half.h5)"):
            self.assertAlmostEqual(float(row["key_error"]), lost[int(row["layer"]), int(row["head"])], places=3)
        message = self.fails(3, "replay", "t.h5", "--policy", "full+external_maps(file=half.h5,keys=1)", "--budget", "7", "--quiet")
        self.assertIn("half.h5:/key_down", message)

    def test_a_trained_system_is_refused_and_named_with_what_reads_its_output(self):
        message = self.fails(2, "replay", "t.h5", "--policy", "full+lococo", "--budget", "7")
        self.assertIn("external_rows", message)

    def test_all_leaves_out_what_needs_a_file(self):
        policies = {row["policy"] for row in self.rows("t.h5", "--policy", "all", "--budget", "50%")}
        self.assertIn("hashevict", policies)
        self.assertNotIn("external_scores", policies)


    def test_a_file_for_each_trace(self):
        """`{trace}` in file or dataset; where there is none, that cell alone is skipped."""
        self.make_trace("two.h5", self.prompt, self.decode, "--seed", "2")
        (self.folder / "scores").mkdir()
        norms = -np.linalg.norm(self.keys().astype(np.float64), axis=-1)
        self.store("scores/t.h5", "scores", norms.astype(np.float32))
        self.store("all.h5", "t/scores", norms.astype(np.float32))
        self.ok("replay", "t.h5", "--policy", "window", "--budget", "7", "--decisions", "scores/t-kept.h5", "--quiet")
        (self.folder / "scores/t-heads.json").write_text("[[1, 1], [1, 2], [1, 1]]")
        policies = {"external_scores(file=scores/{trace}.h5)": "scores/two.h5",
                    "external_scores(file=all.h5,dataset={trace}/scores)": "all.h5:/two",
                    "external_schedule(file=scores/{trace}-kept.h5)": "scores/two-kept.h5",
                    "h2o+headkv(scores=scores/{trace}-heads.json)": "scores/two-heads.json"}
        arguments = [word for policy in (*policies, "l2_norm") for word in ("--policy", policy)]
        done = self.kvsim("replay", "t.h5", "two.h5", *arguments, "--budget", "7", "--format", "json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["results"]
        ran = {(row["trace"], row["policy"], row["params"]): row for row in rows if row["attention_loss"] is not None}
        self.assertEqual(sorted(trace for trace, _, _ in ran), ["t.h5"] * 5 + ["two.h5"])
        for missing in policies.values():
            self.assertIn(missing, done.stdout + done.stderr)
        means = [row["attention_loss"] for (trace, policy, _), row in ran.items() 
                 if trace == "t.h5" and policy in ("l2_norm", "external_scores")]
        self.assertEqual(len(set(means)), 1)

    def test_in_a_study_a_missing_file_skips_its_cell(self):
        self.make_trace("three.h5", self.prompt, self.decode, "--seed", "3")
        scores = np.zeros((LAYERS, HEADS, self.prompt))
        self.store("for-t.h5", "scores", scores)
        (self.folder / "s.json").write_text(json.dumps(
            {"traces": ["t.h5", "three.h5"], "policies": ["external_scores(file=for-{trace}.h5)", "h2o"], "budgets": ["25%"],
             "report": False}))
        self.ok("study", "s.json", "-o", "study", "--quiet")
        rows = list(csv.DictReader(io.StringIO((self.folder / "study/results.csv").read_text())))
        self.assertEqual({(row["trace"], row["policy"]) for row in rows if row["attention_loss"]},
                         {("t", "external_scores"), ("t", "h2o"), ("three", "h2o")})
        skipped = list(csv.DictReader(io.StringIO((self.folder / "study/tables/skipped.csv").read_text())))
        self.assertEqual([(row["trace"], row["policy"]) for row in skipped], [("three", "external_scores")])
        self.assertIn("for-three.h5", skipped[0]["reason"])
        damaged = self.folder / "for-three.h5"
        damaged.write_bytes(b"no HDF5")
        self.assertIn("for-three.h5", self.fails(3, "replay", "three.h5", "--policy", "external_scores(file=for-{trace}.h5)",
                                                 "--budget", "7", "--quiet"))


if __name__ == "__main__":
    kvsim_command.main()
