#!/usr/bin/env python3
"""Tests what is generated from the description of the command line: completion scripts, sourced in the shells that are
there, and manual pages, read by groff without a warning."""
import os
import re
import shutil
import subprocess
import unittest

import kvsim_command
from kvsim_command import KVSIM, CommandTest

# Completes the words given as arguments; the last of them is where the cursor stands.
COMPLETE = """source completion.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_kvsim
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Bash(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "completion.bash").write_text(cls.kvsim("completion", "bash").stdout)
        (cls.folder / "study.json").write_text("{}")
        (cls.folder / "inner").mkdir()

    def complete(self, *words):
        done = subprocess.run(["bash", "-c", COMPLETE, "bash", "kvsim", *words], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(self.complete("rep"), ["replay", "report"])
        self.assertEqual(self.complete("repl"), ["replay"])
        self.assertEqual(self.complete("cost", "e"), ["estimate"])
        self.assertEqual(self.complete("help", "cost", "cal"), ["calibrate"])

    def test_options(self):
        self.assertEqual(self.complete("replay", "--pol"), ["--policy"])
        self.assertEqual(self.complete("replay", "t.h5", "--budget", "10%", "--mem"), ["--memory-limit"])
        self.assertEqual(self.complete("cost", "fit", "--tt"), ["--ttft"])
        self.assertEqual(self.complete("replay", "--nothing"), [])

    def test_values(self):
        self.assertIn("snapkv", self.complete("replay", "t.h5", "--policy", "sna"))
        self.assertEqual(self.complete("replay", "t.h5", "--policy", "tov"), ["tova", "tova.kvpress"])
        self.assertEqual(self.complete("replay", "t.h5", "--policy", "=", "tov"), ["tova", "tova.kvpress"])
        self.assertEqual(self.complete("replay", "t.h5", "--policy", "h2o+pyr"), ["h2o+pyramid", "h2o+pyramidinfer"])
        self.assertEqual(self.complete("replay", "--format", "js"), ["json", "jsonl"])
        self.assertEqual(self.complete("replay", "--per", "l"), ["layer"])
        self.assertEqual(self.complete("cost", "estimate", "--machine", "a100-40"), ["a100-40-pcie", "a100-40-sxm"])
        self.assertEqual(self.complete("cost", "estimate", "--model", "llama-3.1-8"), ["llama-3.1-8b"])
        self.assertEqual(self.complete("replay", "--threads", ""), [])
        self.assertEqual(self.complete("plot", "qual"), ["quality"])
        self.assertEqual(self.complete("workload", "needle-multi-k"), ["needle-multi-key"])
        self.assertEqual(self.complete("completion", "b"), ["bash"])

    def test_files(self):
        self.assertEqual(sorted(self.complete("replay", "")), ["inner", "t.h5"])
        self.assertEqual(sorted(self.complete("study", "")), ["inner", "study.json"])
        self.assertEqual(self.complete("study", "study.json", "-o", ""), ["inner"])
        self.assertEqual(self.complete("plot", "quality", "t."), ["t.h5"])

    def test_every_policy_that_there_is_completes_itself(self):
        listed = re.findall(r"(?m)^\| `(\w+)` \|", self.ok("policy", "list", "--format", "md"))
        completed = self.complete("replay", "--policy", "") + [word[1:] for word in self.complete("replay", "--policy", "+")]
        self.assertGreater(len(listed), 40)
        self.assertEqual(set(listed) - set(completed), set())

    def test_another_shell_is_refused(self):
        self.assertIn("bash", self.fails(2, "completion", "bsh"))


class Zsh(CommandTest):
    def test_begins_as_compinit_wants_and_names_what_bash_names(self):
        text = self.ok("completion", "zsh")
        self.assertTrue(text.startswith("#compdef kvsim\n"))
        for word in "'kvsim cost fit'", "'--policy:", "snapkv", "a100-80-sxm", "'replay:Evaluate":
            self.assertIn(word, text)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_syntax(self):
        (self.folder / "_kvsim").write_text(self.ok("completion", "zsh"))
        done = subprocess.run(["zsh", "-n", "_kvsim"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Manual(CommandTest):
    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_every_page_is_read_without_a_warning(self):
        self.ok("man", "--all", "man1")
        pages = sorted((self.folder / "man1").iterdir())
        self.assertGreater(len(pages), 40)
        for page in pages:
            with self.subTest(page.name):
                # Wide, so that examples fit; -man-db is not there everywhere.
                done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-P-c", "-rLL=160n", page], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for part in "NAME", "SYNOPSIS", "EXAMPLES", "OPTIONS", "SEE ALSO":
                    self.assertIn(part, re.sub(r".\x08", "", done.stdout))

    def test_pages(self):
        page = self.ok("man", "cost", "fit")
        self.assertTrue(page.startswith(".TH KVSIM\\-COST\\-FIT 1 "))
        self.ok("man", "--all", "there")
        self.assertEqual((self.folder / "there" / "kvsim-cost-fit.1").read_text(), page)
        self.assertEqual((self.folder / "there" / "kvsim.1").read_text(), self.ok("man"))
        self.assertIn("exists already", self.fails(2, "man", "--all", "there"))
        self.ok("man", "--all", "there", "--overwrite")


class Installed(CommandTest):
    def test_cmake_puts_them_in_place(self):
        build = os.path.dirname(KVSIM)
        if not os.path.exists(os.path.join(build, "cmake_install.cmake")):
            self.skipTest("this command does not lie in its build folder")
        done = subprocess.run(["cmake", "--install", build, "--prefix", "prefix"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in "bin/kvsim", "share/man/man1/kvsim-replay.1", "share/bash-completion/completions/kvsim", \
                "share/zsh/site-functions/_kvsim":
            self.assertTrue((self.folder / "prefix" / file).stat().st_size > 0, file)
        self.assertEqual((self.folder / "prefix/share/bash-completion/completions/kvsim").read_text(), self.ok("completion", "bash"))


if __name__ == "__main__":
    kvsim_command.main()
