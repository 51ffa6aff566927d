#!/usr/bin/env python3
"""Tests kvsim calibrate on selections: channels of double_sparsity and codebooks of a2ats are those that numpy finds, are used
on other runs in replay and in the running sample model, and are refused where they do not belong."""
import csv
import io

import h5py
import kvsim_command
import numpy as np
from calibrated_runs import MODEL, CalibratedRuns

CODES = "centres=32,rounds=5"
MAKERS = {"double_sparsity": "double_sparsity", "a2ats": f"a2ats({CODES})"}
POLICIES = {"double_sparsity": "full+double_sparsity(read=10%,dense=0,file={})", "a2ats": f"full+a2ats(read=10%,window=8,{CODES},file={{}})"}


class CalibrateSelections(CalibratedRuns):
    makers = MAKERS

    @classmethod
    def recorded(cls, layer, tensor, turned=None):
        """[heads, tokens, dim] of a.h5 in double precision: as stored, or turned to the position that a function of the
        token's says."""
        with h5py.File(cls.folder / "a.h5") as trace:
            frequencies = trace["model/inv_freq"][...].astype(np.float64)
            stored = trace[f"layers/{layer:04d}/{tensor}"][...]
        rows = ((stored.astype(np.uint32) << 16).view(np.float32) if stored.dtype == np.uint16 else stored).astype(np.float64)
        if turned is None:
            return rows
        token = np.arange(rows.shape[1])
        angle = (turned(token) - token)[:, None] * frequencies
        half = len(frequencies)
        a, b = rows[..., :half], rows[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=2)

    def table(self, file, name):
        with h5py.File(self.folder / file) as opened:
            return opened[f"tables/{name}"][...].astype(np.float64)

    def test_channels_are_measured_as_numpy_measures_them(self):
        with h5py.File(self.folder / "double_sparsity.h5") as file:
            self.assertEqual(sorted(file["tables"]), ["mean_k", "mean_q", "mean_qk"])
        for layer in range(4):
            rows = {name: self.recorded(layer, name) for name in "qk"}
            plain = {name: self.recorded(layer, name, lambda token: 0 * token) for name in "qk"}
            group = len(rows["q"]) // len(rows["k"])
            expected = {"k": np.abs(plain["k"]).mean(axis=1), "q": np.abs(plain["q"]).mean(axis=1),
                        "qk": np.abs(rows["q"] * np.repeat(rows["k"], group, axis=0)).mean(axis=1)}
            for name, means in expected.items():
                found = self.table("double_sparsity.h5", f"mean_{name}")[layer].reshape(means.shape)
                np.testing.assert_allclose(found, means, rtol=1e-4, atol=1e-5, err_msg=f"{name} of layer {layer}")

    def test_codebooks_suit_the_queries_as_numpy_has_it(self):
        """L L^T is the normalised sum of q q^T of the queries turned to position 2048; each centre is the mean of the keys
        before rotation, multiplied by L, that are nearest to it, as k-means leaves them when it has come to rest."""
        self.run_or_stop("calibrate", "a2ats(centres=8,rounds=300)", "a.h5", "-o", "rest.h5")
        for layer in range(4):
            queries, keys = self.recorded(layer, "q", lambda token: 0 * token + 2048), self.recorded(layer, "k", lambda token: 0 * token)
            group = len(queries) // len(keys)
            for head, of_head in enumerate(keys):
                rows = np.concatenate(list(queries[head * group:(head + 1) * group]))
                moments = rows.T @ rows
                moments = moments / np.sqrt(np.mean(moments**2)) + 1e-6 * np.eye(64)
                factor = self.table("rest.h5", "factor")[layer, head].reshape(64, 64)
                np.testing.assert_allclose(factor @ factor.T, moments, atol=2e-3 * np.abs(moments).max())
                self.assertEqual(np.abs(np.triu(factor, 1)).max(), 0)
                points = of_head @ factor
                centres = self.table("rest.h5", "centres")[layer, head].reshape(8, 64)
                nearest = np.square(points[:, None] - centres[None]).sum(axis=2).argmin(axis=1)
                for i in range(8):
                    self.assertTrue((nearest == i).any())
                    np.testing.assert_allclose(points[nearest == i].mean(axis=0), centres[i], atol=0.01 * np.abs(points).max())

    def test_other_runs_take_it_and_its_own_are_refused(self):
        for name, policy in POLICIES.items():
            with self.subTest(name):
                measured, prompt = self.rows("b.h5", "--policy", policy.format(f"{name}.h5"), "--policy", policy.format("prompt"),
                                             "--budget", "100%", "--cut", "question")
                top, chance = self.rows("b.h5", "--policy", "full+top_tokens(read=10%)", "--policy", "full+random_tokens(read=10%)",
                                        "--budget", "100%", "--cut", "question")
                self.assertNotEqual(measured["attention_loss"], prompt["attention_loss"])
                self.assertGreater(measured["read_recall"], chance["read_recall"])
                self.assertLess(measured["read_recall"], top["read_recall"])
                self.assertGreater(measured["index_read_bytes"], 0)
                message = self.fails(2, "replay", "a.h5", "--policy", policy.format(f"{name}.h5"), "--budget", "100%", "--quiet")
                self.assertIn("was measured on this run, as a.h5", message)
                allowed, = self.rows("a.h5", "--policy", policy.format(f"{name}.h5,own_traces=allowed"), "--budget", "100%")
                self.assertIn("own_traces=allowed", allowed["params"])

    def test_the_running_model_reads_by_it(self):
        policies = [word for name, policy in POLICIES.items() for word in ("--policy", policy.format(f"{name}.h5"))]
        evaluate = ["evaluate", "--model", MODEL, "--budget", "100%", "--mode", "teacher", "--cut", "question", "--format", "csv", "--quiet"]
        rows = list(csv.DictReader(io.StringIO(self.ok(*evaluate, "--workload", "b.jsonl", *policies))))
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertGreater(float(row["kl"]), 0, row["params"])
            self.assertLess(float(row["read_bytes"]), float(row["held_bytes"]))
        for row in csv.DictReader(io.StringIO(self.ok(*evaluate, "--workload", "a.jsonl", *policies))):
            self.assertIn("was measured on this run", row["skipped"])

    def test_what_does_not_belong_is_refused(self):
        def changed(name, table, change):
            (self.folder / "changed.h5").write_bytes((self.folder / f"{name}.h5").read_bytes())
            with h5py.File(self.folder / "changed.h5", "r+") as file:
                change(file["tables"], table)
                if table in file["tables"]:  # as other programs write it: a changed table with a digest is damaged
                    file["tables"][table].attrs.pop("sha256")
            return self.fails(3, "replay", "b.h5", "--policy", POLICIES[name].format("changed.h5"), "--budget", "100%", "--quiet")

        def spoil(value):
            def change(tables, table):
                numbers = tables[table][...]
                numbers[1, 2] = value
                tables[table][...] = numbers
            return change

        for name, table in (("double_sparsity", "mean_qk"), ("a2ats", "centres"), ("a2ats", "factor")):
            with self.subTest(name, table=table):
                self.assertIn("not finite", changed(name, table, spoil(np.nan)))
                self.assertIn(table, changed(name, table, lambda tables, table: tables.pop(table)))
        self.assertIn("a factor that cannot be undone", changed("a2ats", "factor", spoil(0)))
        for trace, policy, code, reason in (
                ("b.h5", POLICIES["a2ats"].format("none.h5"), 3, "none.h5"),
                ("b.h5", POLICIES["a2ats"].format("b.h5"), 3, "holds no calibration"),
                ("b.h5", POLICIES["double_sparsity"].format("b.h5"), 3, "holds no calibration"),
                ("t.h5", POLICIES["double_sparsity"].format("double_sparsity.h5"), 3, "is of another model"),
                ("b.h5", POLICIES["double_sparsity"].format("a2ats.h5"), 2, "was made for a2ats("),
                ("b.h5", POLICIES["a2ats"].format("double_sparsity.h5"), 2, "was made for double_sparsity()"),
                ("b.h5", "full+a2ats(centres=64,rounds=5,file=a2ats.h5)", 2, "was made for a2ats(centres=32")):
            with self.subTest(policy=policy):
                self.assertIn(reason, self.fails(code, "replay", trace, "--policy", policy, "--budget", "100%", "--quiet"))
        for maker, code, reason in (("a2ats(centres=4096)", 3, "have no 4096 centres"), ("quest", 2, "learns nothing of other runs")):
            with self.subTest(maker):
                self.assertIn(reason, self.fails(code, "calibrate", maker, "a.h5", "-o", "x.h5"))
        self.assertFalse((self.folder / "x.h5").exists())


if __name__ == "__main__":
    kvsim_command.main()
