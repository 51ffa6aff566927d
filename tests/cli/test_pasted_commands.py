#!/usr/bin/env python3
"""Tests that commands which kvsim prints to be pasted are what a shell reads, and are not refused when they are run."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess

import kvsim_command
from kvsim_command import SOURCE, CommandTest


def read_by(shell, text):
    """What a shell says of a text that it may only read; empty: it reads it."""
    return subprocess.run([shell, "-n", "-c", text], capture_output=True, text=True).stderr


def examples(text):
    """The commands below Examples, with continued lines joined."""
    if "\nExamples" not in text:
        return []
    part = text.replace("\\\n", " ").split("\nExamples", 1)[1].split("\n", 1)[1].split("\n\n")[0]
    return [line.strip() for line in part.splitlines() if line.startswith("  ") and line.strip()]


SHELLS = [shell for shell in ("bash", "zsh") if shutil.which(shell)]


class Pasted(CommandTest):
    def readable(self, command):
        for shell in SHELLS:
            self.assertEqual(read_by(shell, f"kvsim {command}" if command.startswith("-") else command), "", command)
        return shlex.split(command, comments=True)

    def test_examples_of_help_and_of_policies_are_read_by_shells(self):
        completion = self.ok("completion", "bash")
        commands = [name.split()[1:] for name in re.findall(r"^    '(kvsim[^']*)'\)$", completion, re.M)]
        self.assertGreater(len(commands), 40)
        texts = [self.ok("help", *command) for command in commands]
        texts += [self.ok("policy", "show", policy["name"]) for policy in json.loads(self.ok("policy", "list", "--format", "json"))]
        read = [self.readable(command) for text in texts for command in examples(text)]
        self.assertGreater(len(read), 300)

    def test_examples_of_policies_are_not_refused(self):
        self.ok("requests", "generate", "--requests", 4, "--seed", 1, "-o", "requests.jsonl")
        for policy in json.loads(self.ok("policy", "list", "--format", "json")):
            shown = examples(self.ok("policy", "show", policy["name"]))
            self.assertGreater(len(shown), 0, policy["name"])
            for command in shown:
                words = self.readable(command)
                self.assertEqual(words[0], "kvsim")
                self.assertEqual(words[1] == "requests", policy["kind"] == "replacement")
                if policy["kind"] != "replacement":  # these want a run of their own: output weights, several layers, a file
                    continue
                done = self.kvsim(*words[1:], "-q")
                self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")

    def test_demo_prints_commands_as_shells_read_them(self):
        demo = (SOURCE / "tools" / "demo.sh").read_text()
        function = demo[demo.index("run() {"):]
        function = function[:function.index("\n}") + 3]
        words = ["true", "a(b=1,c=x:7)+d", "it's", "", "two words", "$HOME", "x=1", "10%,25%", "*"]
        told = subprocess.run(["bash", "-c", function + 'run "$@"', "demo", *words], capture_output=True, text=True, check=True)
        self.assertTrue(told.stderr.startswith("$ "))
        self.assertEqual(self.readable(told.stderr[2:].rstrip("\n")), words)
        self.assertIn("'a(b=1,c=x:7)+d'", told.stderr)

    def hint(self, code, *arguments):
        """The words of the command or option that the message advises."""
        message = self.fails(code, *arguments)
        found = re.search(r"(?:kvsim [a-z]+ |--policy |--trace )\S.*", message.split("\n", 1)[1])
        self.assertTrue(found, message)
        return self.readable(re.split(r"\. See |\? See |\.$| needs none|; kvsim", found[0])[0])

    def test_hints_with_names_of_files_and_policies(self):
        odd = "it's (mine) $1.h5"
        shutil.copy(self.folder / "t.h5", self.folder / odd)
        study = "my study (2).json"
        (self.folder / study).write_text('{"traces": ["t.h5"], "policies": ["h2o"], "budgets": ["25%"]}')
        self.assertEqual(self.hint(2, "trace", odd), ["kvsim", "trace", "info", odd])
        self.assertEqual(self.hint(2, "evaluate", odd), ["--trace", odd])
        self.assertEqual(self.hint(2, "replay", study, "--policy", "h2o", "--budget", 8), ["kvsim", "study", study])
        self.assertIn(f"kvsim replay {shlex.quote(odd)} --policy".replace("'\"'\"'", "'\\''"), self.fails(2, "study", odd))
        self.assertEqual(self.hint(2, "replay", "t.h5", "--policy", "tova", "h2o(recent=0.5)", "--budget", "20"),
                         ["--policy", "h2o(recent=0.5)"])

    def test_a_study_says_how_to_go_on_and_where_its_winners_are(self):
        name, folder = "my study (1).json", "out (1)"
        (self.folder / name).write_text(
            '{"traces": ["t.h5"], "policies": ["h2o", "tova"], "budgets": ["50%"], "report": false, "statistics": {"resamples": 100}}')
        told = self.ok("study", name, "-o", folder, "--quiet")
        command = re.search("kvsim export .*", told)[0]
        self.assertEqual(self.readable(command), ["kvsim", "export", folder, "--table", "winners"])
        self.ok(*shlex.split(command)[1:])
        message = self.fails(2, "study", name, "-o", folder + "2", "--quiet", "--memory-limit", "1KiB")
        command = re.search("Go on with: (kvsim .*)", message)[1]
        self.assertEqual(self.readable(command), ["kvsim", "study", name, "-o", folder + "2", "--resume"])

    def test_hints_name_a_command_that_is_there(self):
        """What is typed instead of a command's name is no file of the command that is advised."""
        self.assertEqual(self.hint(2, "trace", "print", "t.h5"), ["kvsim", "trace", "info", "t.h5"])
        self.assertEqual(self.hint(2, "requests", "look", "r.jsonl"), ["kvsim", "requests", "info", "r.jsonl"])
        self.assertEqual(self.hint(2, "analyze", "everything", "t.h5"), ["kvsim", "analyze", "hash", "t.h5"])
        self.assertEqual(self.hint(2, "policy", "explain", "h2o"), ["kvsim", "policy", "show", "h2o"])
        self.assertEqual(self.hint(2, "policy", "h2o"), ["kvsim", "policy", "show", "h2o"])
        self.assertEqual(self.hint(2, "cost", "price", "m.json")[:2], ["kvsim", "cost"])
        (self.folder / "runs").mkdir()
        self.assertEqual(self.hint(2, "trace", "runs", "t.h5"), ["kvsim", "trace", "info", "runs", "t.h5"])

    def test_documents(self):
        """Commands of a console in the documents."""
        for page in SOURCE.rglob("*.md"):
            if "build" in page.parts or "shared" in page.parts:
                continue
            for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
                for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.M):
                    self.assertEqual(read_by("bash", command), "", f"{page}: {command}")


class Lists(CommandTest):
    """Policies come as comma lists or one by one, in every command that takes some; a comma inside parentheses is the policy's."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert cls.kvsim("requests", "generate", "--requests", 4, "--seed", 1, "-o", "r.jsonl").returncode == 0

    def same(self, *arguments, policies=("h2o(recent=0.25)", "snapkv(window=8,pool=max:3)", "full")):
        one_by_one = self.ok(*arguments, *[f"--policy={policy}" for policy in policies])
        self.assertEqual(self.ok(*arguments, "--policy", ",".join(policies)), one_by_one)
        self.assertEqual(self.ok(*arguments, "--policy", ",".join(policies[:2]), "--policy", policies[2]), one_by_one)
        for policy in policies:
            self.assertIn(re.split(r"\(", policy)[0], one_by_one)

    def test_replay(self):
        self.same("replay", "t.h5", "--budget", "25%", "--quiet", "--format", "csv")
        self.assertIn('policy "h2o(,tova"', self.fails(2, "replay", "t.h5", "--budget", "25%", "--policy", "h2o(,tova"))

    def test_cost(self):
        self.same("cost", "estimate", "--model", "llama-3-8b", "--machine", "t4", "--prompt-tokens", "2K", "--budget", "25%", "--format", "csv")

    def test_requests(self):
        three = ("lru", "s3_fifo(small=0.2)", "opt")
        self.same("requests", "replay", "r.jsonl", "-q", "--format", "csv", policies=three)
        model = ("--model", "llama-3.1-8b", "--machine", "h100-sxm")
        self.same("requests", "tiers", "r.jsonl", *model, "-q", "--format", "csv", policies=("lru", "fifo", "lfu"))
        self.same("requests", "serve", "r.jsonl", *model, "-q", "--format", "csv", policies=("lru", "fifo", "lfu"))
        self.same("requests", "compression", "r.jsonl", *model, "-q", "--budget", "25%", "--format", "csv")
        self.assertIn("named twice", self.fails(2, "requests", "replay", "r.jsonl", "--policy", "lru,opt", "--policy", "lru"))

    def test_plot(self):
        self.ok("replay", "t.h5", "--policy", "h2o,tova,full", "--budget", "25%,50%", "--quiet", "-o", "rows.csv")
        asked = ("plot", "quality", "rows.csv", "--format", "csv")
        self.assertEqual(self.ok(*asked, "--policy", "h2o,tova"), self.ok(*asked, "--policy", "h2o", "--policy", "tova"))

    def test_study(self):
        study = {"traces": ["t.h5"], "budgets": ["50%"], "report": False, "statistics": {"resamples": 100}}
        for name, policies in ("list", ["h2o,tova"]), ("each", ["h2o", "tova"]):
            (self.folder / f"{name}.json").write_text(json.dumps({**study, "policies": policies}))
            self.ok("study", f"{name}.json", "--quiet")
        self.assertEqual((self.folder / "list" / "results.csv").read_text(), (self.folder / "each" / "results.csv").read_text())


if __name__ == "__main__":
    kvsim_command.main()
