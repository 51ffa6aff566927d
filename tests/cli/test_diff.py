#!/usr/bin/env python3
"""kvsim diff: formats compare, exit codes tell, what is no result is refused."""
import json
import shutil

import kvsim_command
from kvsim_command import CommandTest

REPLAY = ["replay", "t.h5", "--policy", "h2o", "--policy", "random", "--budget", "25%,64", "--per", "layer", "--quiet"]


class Diff(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for form in ("csv", "json", "jsonl", "md", "table"):
            made = cls.kvsim(*REPLAY, "--format", form, "-o", f"a.{form}")
            assert made.returncode == 0, made.stderr

    def differing(self, *arguments):
        """Findings, as rows; the exit code says that there are some."""
        done = self.kvsim("diff", *arguments, "--format", "jsonl")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the results differ", done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def changed(self, name, form, old, new):
        text = (self.folder / f"a.{form}").read_text()
        self.assertIn(old, text)
        (self.folder / name).write_text(text.replace(old, new, 1))

    def test_one_result_in_every_machine_format(self):
        for a in ("a.csv", "a.json", "a.jsonl"):
            for b in ("a.csv", "a.json", "a.jsonl"):
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
        self.assertIn("HDF5", self.fails(3, "diff", "a.csv", "t.h5"))
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

    def test_findings_to_a_file(self):
        self.assertEqual(self.kvsim("diff", "a.csv", "a.json", "-o", "none.csv", "--format", "csv").returncode, 0)
        self.assertEqual(len((self.folder / "none.csv").read_text().splitlines()), 1)
        self.assertIn("cannot be its output", self.fails(2, "diff", "a.csv", "a.json", "-o", "a.csv"))


if __name__ == "__main__":
    kvsim_command.main()
