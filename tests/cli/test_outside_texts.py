#!/usr/bin/env python3
"""Tests that names and texts from files of others control no terminal, start no formula in a spreadsheet and break no drawing."""
import csv
import io
import json
import os
import pty
import re
import shutil
import subprocess
import xml.dom.minidom

import h5py

import kvsim_command
from kvsim_command import KVSIM, CommandTest, said_at, start

EVIL = "\x1b]0;owned\x07\x1b[2J\u009b2J evil"
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Outside(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copy(cls.folder / "t.h5", cls.folder / "evil.h5")
        with h5py.File(cls.folder / "evil.h5", "r+") as file:
            model = file["model"].attrs
            kind = model.get_id("name").get_type()
            del model["name"]
            model.create("name", EVIL.encode(), dtype=f"S{len(EVIL.encode())}")
            assert kind is not None
        lines = [{"chat_id": i, "parent_chat_id": -1, "timestamp": 0.5 * i, "input_length": 64, "output_length": 4, "type": EVIL, "turn": 1,
                  "hash_ids": [4 * i + j for j in range(4)]} for i in range(4)]
        cls.jsonl = "".join(json.dumps(line) + "\n" for line in lines)

    def at_terminal(self, *arguments):
        """What a terminal gets of a command, standard error included."""
        master, slave = pty.openpty()
        work = subprocess.Popen([KVSIM, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
        os.close(slave)
        said = said_at(master)
        return work.wait(timeout=100), said.decode("utf-8", "replace").replace("\r\n", "\n")

    def clean(self, *arguments, code=0, shown="evil"):
        ended, said = self.at_terminal(*arguments)
        self.assertEqual(ended, code, said)
        self.assertNotRegex(said, CONTROL)
        self.assertIn(shown, said)

    def test_a_traces_model(self):
        self.clean("trace", "info", "evil.h5")
        self.clean("replay", "evil.h5", "--policy", "h2o", "--budget", "25%")
        piped = self.ok("trace", "info", "evil.h5")  # whoever reads that next is a pager
        self.assertNotRegex(piped, CONTROL)

    def test_names_of_files_and_of_studies(self):
        name = "\x1b[31m.h5"
        shutil.copy(self.folder / "t.h5", self.folder / name)
        self.clean("replay", name, "--policy", "h2o", "--budget", "25%", shown="\\x1b[31m")
        self.clean("replay", "missing\x1b[31m.h5", "--policy", "h2o", "--budget", "25%", code=3, shown="\\x1b[31m")
        self.clean("replay", name, "--policy", "h2o\x1b[31m", "--budget", "25%", code=2, shown="printable ASCII")
        study = {"name": "s\x1b[31m", "traces": [name], "policies": ["h2o", "h2o"], "budgets": ["50%"], "report": False,
                 "statistics": {"resamples": 100}}
        (self.folder / "study.json").write_text(json.dumps(study))
        code, said = self.at_terminal("study", "study.json", "-o", "out\x1b[31m")
        self.assertEqual(code, 0, said)
        bare = re.sub("\r[^\r\n]*\x1b\\[K", "", said)  # the bar's own
        self.assertNotRegex(bare, CONTROL)
        (self.folder / "study.json").write_text(json.dumps({**study, "colour\x1b[31m": "red\x1b[31m"}))
        self.clean("study", "study.json", code=2, shown="\\x1b[31m")

    def test_requests(self):
        (self.folder / "r.jsonl").write_text(self.jsonl)
        self.clean("requests", "info", "r.jsonl")
        self.clean("requests", "replay", "r.jsonl", "--capacity", "1024", "--by", "category")
        self.assertNotRegex(self.ok("requests", "info", "r.jsonl"), CONTROL)

    def test_tables(self):
        self.ok("replay", "t.h5", "--policy", "h2o,tova", "--budget", "25%", "--quiet", "-o", "rows.csv")
        text = (self.folder / "rows.csv").read_text().replace("\nt.h5,", f"\nt{EVIL},")
        (self.folder / "evil.csv").write_text(text, encoding="utf-8")
        self.clean("export", "evil.csv")
        self.clean("export", "evil.csv", "--format", "csv")
        self.assertIn(EVIL, self.ok("export", "evil.csv", "--format", "csv"))  # data for programs is what it is
        self.assertNotRegex(self.ok("export", "evil.csv"), CONTROL)
        self.ok("export", "evil.csv", "-o", "table.txt")
        self.assertNotRegex((self.folder / "table.txt").read_text(), CONTROL)

    def test_text_that_is_no_control_stays(self):
        name = "größe–模型-😀.h5"
        shutil.copy(self.folder / "t.h5", self.folder / name)
        ended, said = self.at_terminal("replay", name, "--policy", "h2o", "--budget", "25%", "--quiet")
        self.assertEqual(ended, 0)
        self.assertIn("größe–模型-😀", said)

    def test_progress(self):
        """The label of a bar is a name from a study."""
        master, slave = pty.openpty()
        (self.folder / "long.json").write_text(json.dumps({
            "name": "long\x1b[31m", "traces": ["t.h5"], "policies": ["all"], "budgets": ["25%", "50%"], "statistics": {"resamples": 100}}))
        work = start("study", "long.json", "-o", "long", cwd=self.folder, stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        said = said_at(master)
        self.assertEqual(work.wait(timeout=200), 0, said)
        self.assertNotIn(b"\x1b[31m", said)

    def test_formulas(self):
        """Spreadsheets run a cell that begins with = + - or @; kvsim reads back what it wrote."""
        names = ["=1+1", "+cmd", "-x", "@sum", "'=quoted", "''-more", "it's", "-5", "1e3", "\t=tab"]
        self.ok("replay", "t.h5", "--policy", "h2o", "--budget", "25%", "--quiet", "-o", "one.jsonl")
        row = json.loads((self.folder / "one.jsonl").read_text())
        (self.folder / "names.jsonl").write_text("".join(json.dumps({**row, "trace": name}) + "\n" for name in names))
        self.ok("export", "names.jsonl", "-o", "names.csv")
        cells = [line["trace"] for line in csv.DictReader(io.StringIO((self.folder / "names.csv").read_text()))]
        self.assertEqual(cells, ["'=1+1", "'+cmd", "'-x", "'@sum", "''=quoted", "'''-more", "it's", "-5", "1e3", "'\t=tab"])
        self.assertEqual([json.loads(line)["trace"] for line in self.ok("export", "names.csv", "--format", "jsonl").splitlines()], names)
        negative = json.dumps({**row, "r": -0.25}) + "\n"
        (self.folder / "negative.jsonl").write_text(negative)
        self.assertIn(",-0.25,", self.ok("export", "negative.jsonl", "--format", "csv"))

    def test_drawings(self):
        self.ok("replay", "t.h5", "--policy", "h2o,tova", "--budget", "25%,50%", "--quiet", "-o", "rows2.jsonl")
        for name in "a]]>b", "<b>&amp;]]>", "]]&gt;":
            rows = [json.loads(line) for line in (self.folder / "rows2.jsonl").read_text().splitlines()]
            for row in rows:
                row["policy"] = row["policy"].replace("h2o", name)
                row["params"] = row["params"].replace("h2o", name)
            (self.folder / "named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            drawn = self.ok("plot", "quality", "named.jsonl")
            texts = "".join(node.data for element in xml.dom.minidom.parseString(drawn).getElementsByTagName("text")
                            for node in every_text(element))
            self.assertIn(name, texts)


def every_text(node):
    for child in node.childNodes:
        if child.nodeType in (child.TEXT_NODE, child.CDATA_SECTION_NODE):
            yield child
        yield from every_text(child)


if __name__ == "__main__":
    kvsim_command.main()
