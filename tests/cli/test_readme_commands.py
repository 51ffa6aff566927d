#!/usr/bin/env python3
"""Runs the commands that the documents show: lines `$ kvsim ...` (or `$ build/release/kvsim ...`) in ```console fences.

Commands of one document run in order, in one folder that looks like a fresh clone, so later ones find the files of
earlier ones. What a reader would bring is there too: DIR is a checkpoint, question.txt a prompt, ids.json token ids.
Other commands shown there (installing, building) are not run.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import kvsim_command
from kvsim_command import KVSIM, SOURCE

DOCUMENTS = ["README.md", "traces/SCHEMA.md", "policies/README.md", "analysis/METRICS.md"]


def shown_commands(text):
    """Command lines of all console fences, continuation lines joined."""
    commands = []
    for fence in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*(> )?", "", fence).splitlines():
            match = re.match(r"\$ ((?:(?:\./)?build/release/)?kvsim\b.*)", line)
            if match:
                commands.append(match[1])
    return commands


class Documents(unittest.TestCase):
    def run_all(self, document):
        path = SOURCE / document
        commands = shown_commands(path.read_text()) if path.exists() else []
        folder = pathlib.Path(tempfile.mkdtemp(prefix="kvsim-doc-"))
        self.addCleanup(shutil.rmtree, folder)
        for name in "traces", "tools", "policies", "analysis":
            (folder / name).symlink_to(SOURCE / name)
        sample = SOURCE / "traces" / "sample"
        (folder / "DIR").symlink_to(sample / "model")
        (folder / "question.txt").symlink_to(sample / "prompts" / "needle-0500-one.txt")
        (folder / "ids.json").write_text(json.dumps([1 + i % 200 for i in range(100)]))
        (folder / "build" / "release").mkdir(parents=True)
        (folder / "build" / "release" / "kvsim").symlink_to(KVSIM)
        environment = {**os.environ, "PATH": f"{folder}/build/release:{os.environ['PATH']}"}
        for command in commands:
            with self.subTest(document=document, command=command):
                done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment,
                                      capture_output=True, text=True, timeout=200)
                self.assertEqual(done.returncode, 0, done.stderr)
        return commands

    def test_readme(self):
        self.assertTrue(self.run_all("README.md"), "README.md shows no kvsim command in a console fence")

    def test_other_documents(self):
        for document in DOCUMENTS[1:]:
            self.run_all(document)

    def test_the_reader_of_documents(self):
        text = "```console\n$ kvsim trace info a.h5 \\\n    --format json\ntrace a.h5\n$ tools/test.sh\n" \
               "$ build/release/kvsim policy list\n```\n```sh\n$ kvsim never\n```\n"
        self.assertEqual(shown_commands(text), ["kvsim trace info a.h5 --format json", "build/release/kvsim policy list"])


if __name__ == "__main__":
    kvsim_command.main()
