#!/usr/bin/env python3
"""Tests kvsim export: results are converted to every other format, with their descriptions."""
import json

import h5py
import kvsim_command
from kvsim_command import CommandTest

REPLAY = ["replay", "t.h5", "--policy", "h2o", "--policy", "tova", "--budget", "25%,64", "--quiet", "--format"]


class Export(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for form in ("csv", "json", "jsonl", "md", "h5"):
            assert cls.kvsim(*REPLAY, form, "-o", f"a.{form}").returncode == 0
        (cls.folder / "study.json").write_text(json.dumps(
            {"traces": ["t.h5"], "policies": ["h2o", "tova"], "budgets": ["25%"], "report": False}))
        made = cls.kvsim("study", "study.json", "-o", "study", "--quiet")
        assert made.returncode == 0, made.stderr

    def test_files(self):
        for source in ("a.csv", "a.json", "a.jsonl", "a.h5"):
            for form in ("csv", "jsonl"):
                self.assertEqual(self.ok("export", source, "--format", form), (self.folder / f"a.{form}").read_text())
            document = json.loads(self.ok("export", source, "--format", "json"))
            self.assertEqual(document["results"], json.loads((self.folder / "a.json").read_text())["results"])
            self.assertEqual(next(column["unit"] for column in document["columns"] if column["key"] == "r"), "share")

    def test_a_study(self):
        means = (self.folder / "study" / "tables" / "means.csv").read_text()
        self.assertEqual(self.ok("export", "study", "--table", "means", "--format", "csv"), means)
        self.ok("export", "study", "--format", "h5", "-o", "study.h5")
        with h5py.File(self.folder / "study.h5") as file:
            tables = {path.name.split(".")[0] for path in (self.folder / "study" / "tables").glob("*.csv*")}
            self.assertEqual(set(file), tables | {"results", "results-layer"})
            self.assertEqual(file["means/mean"].attrs["description"],
                             b"over traces; a trace's value is the mean over its seeds, which its interval draws anew, too")
            self.assertEqual(len(file["means/mean"]), len(means.splitlines()) - 1)
        self.assertIn("No differences.", self.ok("diff", "study", "study.h5"))
        self.assertEqual(self.ok("export", "study.h5", "--table", "means", "--format", "csv"), means)

    def test_refusals(self):
        self.assertIn("--table", self.fails(2, "export", "study"))
        self.assertIn("Did you mean means", self.fails(2, "export", "study", "--table", "mean"))
        self.assertIn("-o results.h5", self.fails(2, "export", "study", "--format", "h5"))
        self.assertIn("cannot be opened", self.fails(3, "export", "nowhere"))
        self.assertIn("cannot be its output", self.fails(2, "export", "a.csv", "-o", "a.csv", "--overwrite"))


if __name__ == "__main__":
    kvsim_command.main()
