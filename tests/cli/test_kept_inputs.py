#!/usr/bin/env python3
"""Tests that no command replaces what it reads, that a study touches nothing behind links in its folder, and that a replaced file
keeps its mode."""
import hashlib
import json
import os
import shutil

import kvsim_command
from kvsim_command import SOURCE, CommandTest

MODEL = SOURCE / "traces/sample/model"
REQUESTS = SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz"
EVALUATE = ("evaluate", "--policy", "window", "--budget", 64, "--max-new-tokens", 1, "--quiet", "--overwrite")
COST = ("cost", "estimate", "--policy", "h2o", "--budget", 512, "--prompt-tokens", "8K", "--overwrite", "--format", "json")


class Inputs(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copytree(MODEL, cls.folder / "model")
        shutil.copy(SOURCE / "traces/sample/prompts/copy-0500.txt", cls.folder / "text.txt")
        shutil.copy(SOURCE / "sim/cost/catalogue/machines/a100-80-sxm.json", cls.folder / "machine.json")
        shutil.copy(MODEL / "config.json", cls.folder)
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(40)))
        (cls.folder / "study.json").write_text('{"traces": ["t.h5"], "policies": ["h2o"], "budgets": [20]}')
        for command in (["workload", "needle", "--context", 200, "--count", 1, "--tokenizer", MODEL, "-o", "items.jsonl"],
                        ["replay", "t.h5", "--policy", "window", "--budget", 64, "--quiet", "-o", "rows.csv", "--decisions", "kept.h5"],
                        ["calibrate", "kvquant", "t.h5", "-o", "tables.h5", "--quiet"],
                        ["capture", "--model", MODEL, "--tokens", "ids.txt", "--max-new-tokens", 2, "--quiet", "-o", "run.h5"],
                        ["study", "study.json", "-o", "study", "--quiet"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr
        for link, name in ("alias", "t.h5"), ("weights.h5", "model/model.safetensors"), ("question", "text.txt"):
            os.link(cls.folder / name, cls.folder / link)
        os.symlink("items.jsonl", cls.folder / "link.jsonl")

    def state(self, folder="."):
        """What lies in a folder, links as links."""
        return {str(path): os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (self.folder / folder).rglob("*") if path.is_symlink() or path.is_file()}

    def test_a_file_that_is_read_is_no_output(self):
        model = "--model", "model"
        replay = "replay", "t.h5", "--budget", 20, "--quiet", "--overwrite", "--policy"
        for command in ([*EVALUATE, *model, "--workload", "items.jsonl", "-o", "items.jsonl"],
                        [*EVALUATE, *model, "--workload", "items.jsonl", "-o", "link.jsonl"],
                        [*EVALUATE, *model, "--prompt", "text.txt", "-o", "text.txt"],
                        [*EVALUATE, *model, "--prompt", "question", "-o", "question"],  # seen only when it is opened
                        [*EVALUATE, *model, "--prompt", "text.txt", "--format", "json", "-o", "model/config.json"],
                        [*EVALUATE, *model, "--trace", "run.h5", "--decisions", "run.h5"],
                        [*replay, "h2o", "--decisions", "t.h5"], [*replay, "h2o", "-o", "alias", "--format", "csv"],
                        [*replay, "full+kvquant(file=tables.h5,own_traces=allowed)", "--format", "h5", "-o", "tables.h5"],
                        [*replay, "full+kvquant(file=tables.h5,own_traces=allowed)", "--decisions", "tables.h5"],
                        [*replay, "external_schedule(file=kept.h5)", "--decisions", "kept.h5"],
                        ["capture", *model, "--tokens", "ids.txt", "--quiet", "--overwrite", "-o", "weights.h5"],
                        ["plot", "quality", "rows.csv", "--format", "csv", "--overwrite", "-o", "rows.csv"],
                        [*COST, "--model", "llama-3-8b", "--machine", "machine.json", "-o", "machine.json"],
                        [*COST, "--model=config.json", "--machine", "a100-80-sxm", "-o", "config.json"],
                        ["requests", "serve", REQUESTS, "--limit", 20, "--model", "llama-3.1-8b", "--machine", "machine.json", "--quiet",
                         "--format", "json", "--overwrite", "-o", "machine.json"],
                        *(["export", "study", "--table", "results", "--overwrite", "-o", f"study/{name}"]
                          for name in ("results.csv", "tables/means.csv")),
                        ["export", "study", "--table", "results", "--overwrite", "-o", "study/study.json"],
                        ["plot", "quality", "study", "--format", "csv", "--overwrite", "-o", "study/results.csv"]):
            with self.subTest(command):
                before = self.state()
                self.assertIn("is read by this command and cannot be its output too", self.fails(2, *command))
                self.assertEqual(self.state(), before)

    def test_what_a_study_replaces_is_not_read_by_it(self):
        (self.folder / "own").mkdir()
        shutil.copy(self.folder / "text.txt", self.folder / "own/report.html")
        (self.folder / "own/asks.json").write_text(json.dumps(
            {"capture": {"model": "../model", "prompts": [{"files": "report.html", "name": "a"}], "max_new_tokens": 1}, "policies": ["h2o"],
             "budgets": [20]}))
        (self.folder / "own/tasks").mkdir()
        (self.folder / "own/study.json").write_text((self.folder / "study/study.json").read_text())
        before = self.state("own")
        self.assertIn("is read by this study", self.fails(2, "study", "own/asks.json", "-o", "own", "--overwrite", "--quiet"))
        self.assertEqual(self.state("own"), before)

    def test_links_in_a_study_are_not_followed(self):
        foreign = self.folder / "data/h2o.full"
        foreign.mkdir(parents=True)
        for name in "rows.csv.gz", "skipped.csv", "SHA256SUMS", "means.csv", "quality.svg", "t.h5":
            for folder in foreign, foreign.parent:
                (folder / name).write_text("precious")
        before = self.state("data")
        for name in "tasks", "tables", "figures":
            shutil.copytree(self.folder / "study", self.folder / f"linked-{name}")
            shutil.rmtree(self.folder / f"linked-{name}" / name)
            (self.folder / f"linked-{name}" / name).symlink_to(self.folder / "data")
            for more in ("--overwrite",), ("--resume",):
                self.assertIn("is a link, which a study does not follow",
                              self.fails(3, "study", "study.json", "-o", f"linked-{name}", "--quiet", *more))
            self.assertEqual(self.state("data"), before)
        self.assertIn("is a link", self.fails(3, "report", "linked-figures", "--overwrite"))

        shutil.copytree(self.folder / "study", self.folder / "links")
        for name in "results.csv", "tables/means.csv", "figures/quality.csv", "columns.csv":
            (self.folder / "links" / name).unlink(missing_ok=True)
            (self.folder / "links" / name).symlink_to(self.folder / "data/means.csv")
        (self.folder / "links/tasks/t.old").symlink_to(self.folder / "data/h2o.full")
        self.ok("study", "study.json", "-o", "links", "--quiet", "--resume")
        self.ok("study", "study.json", "-o", "links", "--quiet", "--overwrite")
        self.assertEqual(self.state("data"), before)
        self.assertFalse((self.folder / "links/results.csv").is_symlink())

    def test_a_folder_of_tables_that_cannot_be_listed_is_no_study_without_tables(self):
        shutil.copytree(self.folder / "study", self.folder / "unlisted")
        shutil.rmtree(self.folder / "unlisted/tables")
        (self.folder / "unlisted/tables").write_text("a file")
        self.assertIn("unlisted/tables: cannot be listed", self.fails(3, "export", "unlisted", "-o", "x.h5"))
        self.assertFalse((self.folder / "x.h5").exists())

    def test_a_replaced_file_keeps_its_mode(self):
        for name, command in (("private.csv", ["replay", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "-o", "private.csv"]),
                              ("private.h5", ["trace", "generate", "--prompt-tokens", 20, "-o", "private.h5"])):
            (self.folder / name).write_text("")
            (self.folder / name).chmod(0o600)
            self.ok(*command, "--overwrite")
            self.assertEqual((self.folder / name).stat().st_mode & 0o777, 0o600)


if __name__ == "__main__":
    kvsim_command.main()
