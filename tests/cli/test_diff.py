#!/usr/bin/env python3
"""Tests kvsim diff: results of any format and traces are compared, the exit code says whether they differ, other files
are refused."""
import json
import shutil

import h5py
import numpy as np

import kvsim_command
from kvsim_command import CommandTest

REPLAY = ["replay", "t.h5", "--policy", "h2o", "--policy", "random", "--budget", "25%,64", "--per", "layer", "--quiet"]


def shorten(group, key):
    """Drops the last row of one column."""
    rows = group[key][:-1]
    del group[key]
    group[key] = rows


class Diff(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for form in ("csv", "json", "jsonl", "md", "table", "h5"):
            made = cls.kvsim(*REPLAY, "--format", form, "-o", f"a.{form}")
            assert made.returncode == 0, made.stderr

    def differing(self, *arguments):
        """The differences, as rows; the exit code must say that there are some."""
        done = self.kvsim("diff", *arguments, "--format", "jsonl")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the results differ", done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def changed(self, name, form, old, new):
        text = (self.folder / f"a.{form}").read_text()
        self.assertIn(old, text)
        (self.folder / name).write_text(text.replace(old, new, 1))

    def test_one_result_in_every_machine_format(self):
        for a in ("a.csv", "a.json", "a.jsonl", "a.h5"):
            for b in ("a.csv", "a.json", "a.jsonl", "a.h5"):
                self.assertIn("No differences.", self.ok("diff", a, b))

    def test_a_changed_value(self):
        value = json.loads((self.folder / "a.json").read_text())["results"][4]["r"]
        self.changed("b.json", "json", f'"r": {value}', f'"r": {value + 0.0625}')
        finding, = self.differing("a.csv", "b.json")
        self.assertEqual((finding["table"], finding["finding"], finding["column"], finding["count"]),
                         ("results", "changed", "r", 1))
        self.assertEqual((finding["a"], finding["b"]), (value, value + 0.0625))
        self.assertEqual(finding["row"], "policy=random budget=25% layer=1")
        self.assertIn("No differences.", self.ok("diff", "a.csv", "b.json", "--tolerance", "0.07"))
        self.assertIn("changed", self.kvsim("diff", "a.csv", "b.json").stdout)

    def test_missing_rows(self):
        lines = (self.folder / "a.csv").read_text().splitlines(keepends=True)
        (self.folder / "short.csv").write_text("".join(lines[:-2]))
        finding, = self.differing("a.csv", "short.csv")
        self.assertEqual((finding["finding"], finding["count"]), ("rows only in A", 2))

    def test_folders_of_studies(self):
        for name, policy in (("one", "h2o"), ("two", "tova")):
            (self.folder / name / "tables").mkdir(parents=True)
            shutil.copy(self.folder / "a.csv", self.folder / name / "results.csv")
            (self.folder / name / "tables" / "means.csv").write_text(f"policy,budget,mean\n{policy},128,0.5\n")
        self.ok("diff", "one", "one")
        self.assertEqual([(row["table"], row["finding"]) for row in self.differing("one", "two")],
                         [("means", "rows only in A"), ("means", "rows only in B")])

    def test_what_is_no_result(self):
        self.assertIn("HDF5 that holds no results", self.fails(3, "diff", "a.csv", "t.h5"))
        self.assertIn("rounded", self.fails(3, "diff", "a.csv", "a.md"))
        self.assertIn("rounded", self.fails(3, "diff", "a.table", "a.csv"))
        self.assertIn("cannot be opened", self.fails(3, "diff", "a.csv", "nowhere"))
        (self.folder / "empty").mkdir()
        self.assertIn("folder of a study", self.fails(3, "diff", "a.csv", "empty"))
        for bad, what in (("{", "not valid JSON"), ('{"a": 1, "b": [2]}', "neither text nor a number"),
                          ('{"a": 1, "b": 2}\n{"a": 1}', "has no"), ('{"a": 1, "a": 2}', "twice"),
                          ('{\n"results": 3}', "results"), ("a,b\n1\n", "fields")):
            (self.folder / "bad").write_text(bad)
            self.assertIn(what, self.fails(3, "diff", "a.csv", "bad"))
        self.fails(2, "diff", "a.csv", "a.csv", "--tolerance", "-1")

    def test_hdf5_that_was_changed(self):
        for name, change, said in (
                ("other", lambda file: file.attrs.__setitem__("schema_major", np.uint16(1)), "another schema version"),
                ("open", lambda file: file.attrs.__setitem__("complete", np.uint8(0)), "its writer did not finish"),
                ("short", lambda file: shorten(file["results"], "r"), "unlike the first column"),
                ("kind", lambda file: file["results"].__delitem__("r"), "is missing")):
            shutil.copy(self.folder / "a.h5", self.folder / f"{name}.h5")
            with h5py.File(self.folder / f"{name}.h5", "r+") as file:
                change(file)
            self.assertIn(said, self.fails(3, "diff", "a.csv", f"{name}.h5"))

    def test_findings_to_a_file(self):
        self.assertEqual(self.kvsim("diff", "a.csv", "a.json", "-o", "none.csv", "--format", "csv").returncode, 0)
        self.assertEqual(len((self.folder / "none.csv").read_text().splitlines()), 1)
        self.assertIn("cannot be its output", self.fails(2, "diff", "a.csv", "a.json", "-o", "a.csv"))

    def test_options_of_traces(self):
        self.assertIn("is for traces", self.fails(2, "diff", "a.csv", "a.csv", "--per", "layer"))
        self.assertIn("is for traces", self.fails(2, "diff", "a.csv", "a.csv", "--row-tolerance", "0.5"))


class TraceDiff(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("bf16.h5", cls.prompt, cls.decode, "--elem", "bf16")
        cls.make_trace("short.h5", cls.prompt, cls.decode - 2)
        cls.make_trace("seed.h5", cls.prompt, cls.decode, "--seed", "2")
        cls.make_trace("heads.h5", 16, 2, "--group", "1")

    def differing(self, *arguments):
        done = self.kvsim("diff", *arguments, "--format", "jsonl", "--quiet")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the traces differ", done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_the_same_trace(self):
        self.assertIn("No differences", self.ok("diff", "t.h5", "t.h5", "--tolerance", "0"))
        rows = json.loads(self.ok("diff", "t.h5", "t.h5", "--format", "json", "--per", "layer"))["results"]
        self.assertEqual([(row["layer"], row["part"], row["finding"]) for row in rows],
                         [(layer, part, "equal") for layer in range(3) for part in "qkv"])

    def test_elements_choose_the_tolerance(self):
        rows = json.loads(self.ok("diff", "t.h5", "bf16.h5", "--format", "json"))["results"]
        self.assertEqual([(row["part"], row["finding"], row["layers"], row["tolerance"]) for row in rows],
                         [(part, "close", 3, 8 / 256) for part in "qkv"])
        rows = self.differing("t.h5", "bf16.h5", "--tolerance", "1e-4")
        self.assertEqual({(row["finding"], row["layers_different"]) for row in rows}, {("different", 3)})
        # The largest difference is at the place it names.
        for row in rows:
            with h5py.File(self.folder / "t.h5") as a, h5py.File(self.folder / "bf16.h5") as b:
                tensors = [np.asarray(file[f"layers/{row['layer']:04d}/{row['part']}"], "f8") for file in (a, b)]
            place = row["head"], row["token"], row["component"]
            self.assertEqual((row["a"], row["b"]), (tensors[0][place], tensors[1][place]))
            self.assertEqual(row["largest_difference"], abs(tensors[0] - tensors[1]).max())
            norms = [np.linalg.norm(tensor) for tensor in (*tensors, tensors[0] - tensors[1])]
            self.assertAlmostEqual(row["relative_error"], norms[2] / max(norms[:2]), 12)
            self.assertAlmostEqual(row["cosine"], (tensors[0] * tensors[1]).sum() / norms[0] / norms[1], 12)

    def test_runs_that_part(self):
        rows = self.differing("t.h5", "short.h5")
        self.assertEqual(rows[0]["part"], "tokens")
        self.assertEqual(rows[0]["detail"], "108 against 106; the first 106 are compared")
        self.assertIn("Different tokens: 108 against 106", self.kvsim("diff", "t.h5", "short.h5").stdout)
        self.assertIn("First to differ: k, q, v of layer 0", self.kvsim("diff", "t.h5", "seed.h5").stdout)

    def test_other_models(self):
        row, = self.differing("t.h5", "heads.h5")
        self.assertEqual((row["part"], row["detail"]), ("model", "query heads: 4 against 2"))

    def test_what_is_no_trace(self):
        (self.folder / "r.csv").write_text("a,b\n1,2\n")
        self.assertIn("HDF5", self.fails(3, "diff", "t.h5", "r.csv"))
        (self.folder / "cut.h5").write_bytes((self.folder / "t.h5").read_bytes()[:5000])
        self.assertIn("cut.h5", self.fails(3, "diff", "t.h5", "cut.h5", "--quiet"))
        self.ok("replay", "t.h5", "--policy", "h2o", "--budget", "25%", "--format", "h5", "-o", "rows.h5", "--quiet")
        self.assertIn("t.h5: is HDF5 that holds no results", self.fails(3, "diff", "rows.h5", "t.h5", "--quiet"))


if __name__ == "__main__":
    kvsim_command.main()
