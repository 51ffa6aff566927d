#!/usr/bin/env python3
"""Tests that every wrong command line gets its exit code, and a message that says what to type instead."""
import json
import re

import kvsim_command
from kvsim_command import SOURCE, CommandTest


class Usage(CommandTest):
    def replay_fails(self, *arguments):
        return self.fails(2, "replay", "t.h5", *arguments)

    def test_commands(self):
        message = self.fails(2)
        for name in "capture", "workload", "trace", "replay", "policy":
            self.assertIn(name, message)
        self.assertIn("Did you mean replay", self.fails(2, "replya", "t.h5"))
        self.assertIn("needs a command", self.fails(2, "trace"))
        self.assertIn("Did you mean generate", self.fails(2, "trace", "genrate", "t.h5"))

    def test_options(self):
        self.assertIn("Did you mean --policy", self.replay_fails("--polcy", "h2o", "--budget", "8"))
        self.assertIn("Did you mean --budget", self.replay_fails("--policy", "h2o", "--bugdet=8"))
        self.assertIn("Did you mean --version", self.fails(2, "--versoin"))
        self.assertIn("h2o needs to be told how much it may keep: --budget 10%", self.replay_fails("--policy", "full", "--policy", "h2o"))
        self.assertIn("TRACE is required", self.fails(2, "replay", "--policy", "h2o", "--budget", "8"))
        self.assertIn("--policy", self.replay_fails("--budget", "8", "--policy"))
        for wrong in "0", "-1", "two", "1.5", "99999999999":
            self.assertIn("--threads", self.replay_fails("--policy", "h2o", "--budget", "8", "--threads", wrong))
        for wrong in "-1", "one", "1.5", "18446744073709551616":
            self.assertIn("--seed", self.replay_fails("--policy", "h2o", "--budget", "8", "--seed", wrong))
        self.assertIn("--memory-limit", self.replay_fails("--policy", "h2o", "--budget", "8", "--memory-limit", "1XB"))

    def test_values_may_follow_an_equals_sign(self):
        self.assertEqual(self.ok("replay", "t.h5", "--policy=h2o", "--budget=8", "--format=csv"),
                         self.ok("replay", "--format", "csv", "--budget", "8", "--policy", "h2o", "t.h5"))

    def test_formats_and_scopes(self):
        message = self.replay_fails("--policy", "h2o", "--budget", "8", "--format", "jsn")
        self.assertIn("jsn", message)
        self.assertIn("json", message)
        self.assertIn("layer", self.replay_fails("--policy", "h2o", "--budget", "8", "--per", "layers"))

    def test_policies(self):
        self.assertIn("snapkv", self.replay_fails("--policy", "snapvk", "--budget", "8"))
        message = self.replay_fails("--policy", "h2o+pyramdi", "--budget", "8")
        self.assertIn("pyramid", message)
        message = self.replay_fails("--policy", "snapkv(windw=8)", "--budget", "16")
        self.assertIn("windw", message)
        self.assertIn("Did you mean window", message)
        for text in "snapkv(window=x)", "snapkv(window=8", "snapkv(window=8)garbage", "", "h2o+uniform+uniform", "+":
            self.replay_fails("--policy", text, "--budget", "16")
        self.assertIn("tovaa", self.replay_fails("--policy", "h2o,tovaa", "--budget", "16"))

    def test_budgets(self):
        for text in "0", "-4", "0%", "-5%", "abc", "", "10,,20", "10%%", "1e99", "nan", "inf", "5 apples", "0KiB":
            message = self.replay_fails("--policy", "h2o", f"--budget={text}")
            self.assertIn("budget", message.lower(), text)
        # 1 % of 96 tokens is less than one, and a byte is less than a token.
        self.replay_fails("--policy", "h2o", "--budget", "1%")
        self.replay_fails("--policy", "window", "--budget", "1B")
        # This budget is below the tokens that the policy keeps for any scores.
        self.assertIn("32", self.replay_fails("--policy", "snapkv(window=32)", "--budget", "8"))

    def test_memory_limit(self):
        message = self.replay_fails("--policy", "h2o", "--budget", "8", "--memory-limit", "10KiB")
        self.assertIn("10 KiB", message)
        self.ok("replay", "t.h5", "--policy", "h2o", "--budget", "8", "--memory-limit", "1GiB")


class Files(CommandTest):
    def replay(self, name):
        return self.fails(3, "replay", name, "--policy", "h2o", "--budget", "8")

    def test_missing_and_foreign_files(self):
        self.assertIn("missing.h5", self.replay("missing.h5"))
        (self.folder / "text.h5").write_text("not a trace")
        self.assertIn("text.h5", self.replay("text.h5"))
        (self.folder / "empty.h5").write_bytes(b"")
        self.assertIn("empty.h5", self.replay("empty.h5"))
        (self.folder / "folder.h5").mkdir()
        self.assertIn("folder.h5", self.replay("folder.h5"))

    def test_truncated_traces(self):
        whole = (self.folder / "t.h5").read_bytes()
        for share in 0.1, 0.5, 0.9, 0.999:
            (self.folder / "cut.h5").write_bytes(whole[:int(len(whole) * share)])
            self.assertIn("cut.h5", self.replay("cut.h5"))


class WrongTurns(CommandTest):
    """What a person tries who has not read the documents yet, and what the message says to do instead."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "study.json").write_text('{"traces": ["t.h5"], "policies": ["h2o"], "budgets": ["25%"]}')
        (cls.folder / "prompts.jsonl").write_text('{"id": "a", "prompt": "What is it?"}\n')
        for name in "rows.csv", "rows.h5":
            made = cls.kvsim("replay", "t.h5", "--policy", "h2o", "--budget", "20", "-o", name, "--quiet")
            assert made.returncode == 0, made.stderr

    def replay(self, *arguments):
        return self.fails(2, "replay", *arguments, "--policy", "h2o", "--budget", "20")

    def test_values_that_slipped_out_of_their_option(self):
        self.assertIn("--policy h2o", self.fails(2, "replay", "t.h5", "--policy", "tova", "h2o", "--budget", "20"))
        self.assertIn("--policy 'h2o(recent=0.5)'",
                      self.fails(2, "replay", "t.h5", "--policy", "tova", "h2o(recent=0.5)", "--budget", "20"))
        self.assertIn("--budget 10%,25%", self.fails(2, "replay", "t.h5", "--policy", "tova", "--budget", "10%", "25%"))

    def test_files_of_another_kind(self):
        self.assertIn("kvsim study study.json", self.replay("study.json"))
        self.assertIn("--workload", self.replay("prompts.jsonl"))
        for table in "rows.csv", "rows.h5":
            self.assertIn("kvsim export", self.replay(table))
        self.assertIn("kvsim replay t.h5", self.fails(2, "study", "t.h5"))
        for command in ["analyze", "heads"], ["trace", "info"], ["cost", "calibrate"]:
            self.assertIn("kvsim study study.json", self.fails(2, *command, "study.json"))
        self.assertIn("--trace t.h5", self.fails(2, "evaluate", "t.h5"))

    def test_texts_and_models(self):
        model = SOURCE / "traces" / "sample" / "model"
        for command in ["capture", "-o", "never.h5"], ["evaluate", "--policy", "h2o", "--budget", "20"]:
            message = self.fails(3, *command, "--model", model, "--prompt", "What is it?")
            self.assertIn("--prompt takes a file", message)
            self.assertIn("question.txt", message)
            message = self.fails(3, *command, "--model", "llama-3-8b", "--prompt", "prompts.jsonl")
            self.assertIn("checkpoint", message)

    def test_commands_and_options_of_others(self):
        self.assertIn("kvsim policy list", self.fails(2, "list"))
        self.assertIn("kvsim trace info t.h5", self.fails(2, "trace", "t.h5"))
        self.assertIn("kvsim policy show h2o", self.fails(2, "policy", "h2o"))
        self.assertIn("kvsim analyze hash t.h5", self.fails(2, "analyze", "t.h5"))
        self.assertIn("Did you mean --budget", self.fails(2, "replay", "t.h5", "--policy", "h2o", "--budgets", "20"))


class Sizes(CommandTest):
    def test_tokens_and_bytes_are_read_alike_everywhere(self):
        for name, tokens in ("k.h5", "1K"), ("same.h5", "1024"):
            self.ok("trace", "generate", "--prompt-tokens", tokens, "--layers", 1, "-o", name)
        self.assertIn("No differences", self.ok("diff", "k.h5", "same.h5", "--quiet"))
        rows = [self.rows("k.h5", "--policy", "h2o", "--budget", budget)[0]["budget_tokens"] for budget in ("1K", "1024")]
        self.assertEqual(rows, [1024, 1024])
        self.assertEqual([row["cut"] for row in self.rows("k.h5", "--policy", "h2o", "--budget", "20", "--cut", "1K")], ["1024"])
        for limit in "1KiB", "1KB", "1024B":
            self.assertIn("the limit is", self.fails(2, "replay", "k.h5", "--policy", "h2o", "--budget", "20", "--memory-limit", limit))
        for wrong in "1024", "2K", "1G", "0B", "-1KiB", "x":
            self.assertIn("--memory-limit", self.fails(2, "replay", "k.h5", "--policy", "h2o", "--budget", "20",
                                                       f"--memory-limit={wrong}"))
        for wrong in "1KiB", "1.5K", "-1", "x":
            self.assertIn("--prompt-tokens", self.fails(2, "trace", "generate", f"--prompt-tokens={wrong}", "-o", "never.h5"))


class Endings(CommandTest):
    """-o names the format; --format may say it too, and must not contradict."""
    asked = ["replay", "t.h5", "--policy", "h2o", "--budget", "20", "--quiet"]

    def test_the_ending_chooses(self):
        for ending in "csv", "json", "jsonl", "md":
            expected = self.ok(*self.asked, "--format", ending)
            self.ok(*self.asked, "-o", f"by-ending.{ending}")
            self.assertEqual((self.folder / f"by-ending.{ending}").read_text(), expected)
            self.ok(*self.asked, "-o", f"both.{ending}", "--format", ending)
            self.assertEqual((self.folder / f"both.{ending}").read_text(), expected)
        self.ok(*self.asked, "-o", "rows.h5")
        self.assertIn("No differences", self.ok("diff", "rows.h5", "by-ending.csv"))
        self.ok(*self.asked, "-o", "table.txt")
        self.assertEqual((self.folder / "table.txt").read_text(), self.ok(*self.asked))
        self.ok(*self.asked, "-o", "rows.txt", "--format", "csv")
        self.assertEqual((self.folder / "rows.txt").read_text(), self.ok(*self.asked, "--format", "csv"))

    def test_parquet_is_named_and_not_read(self):
        (self.folder / "rows.parquet").write_bytes(b"PAR1\0\0PAR1")
        for command in ["plot", "quality"], ["export"]:
            message = self.fails(3, *command, "rows.parquet")
            self.assertIn("Parquet", message)
            self.assertIn("pandas.read_parquet", message)
        self.assertIn("to_parquet(", self.fails(2, *self.asked, "-o", "never.parquet"))

    def test_endings_of_no_format(self):
        for ending in "parquet", "xlsx", "feather":
            message = self.fails(2, *self.asked, "-o", f"never.{ending}")
            self.assertIn(f"writes no {ending}", message)
            self.assertIn("Python package", message)
            self.assertIn("writes no", self.fails(2, *self.asked, "-o", f"never.{ending}", "--format", "csv"))
            for command in (["trace", "generate"], ["workload", "needle", "--context", 200],
                            ["allocate", "t.h5", "--policy", "h2o+pyramid", "--budget", "20"], ["calibrate", "kvquant", "t.h5"]):
                self.assertIn(ending, self.fails(2, *command, "-o", f"never.{ending}"))
        for ending, near in ("jsn", "json"), ("hdf5", "h5"), ("csv2", "csv"), ("tsv", "csv"), ("cvs", "csv"):
            self.assertIn(near, self.fails(2, *self.asked, "-o", f"never.{ending}"))
        self.assertIn("HTML", self.fails(2, "report", "folder", "-o", "never.pdf"))
        self.ok(*self.asked, "-o", "plain")
        self.ok(*self.asked, "-o", "odd.dat", "--format", "csv")
        self.assertEqual(self.ok(*self.asked), (self.folder / "plain").read_text())
        self.assertEqual([path.name for path in self.folder.glob("never*")], [])

    def test_contradictions(self):
        for ending, format in ("csv", "json"), ("h5", "csv"), ("json", "table"), ("md", "h5"):
            message = self.fails(2, *self.asked, "-o", f"never.{ending}", "--format", format)
            self.assertIn("contradicts", message)
        for command in (["allocate", "t.h5", "--policy", "h2o+pyramid", "--budget", "20", "-o", "never.csv"],
                        ["trace", "generate", "-o", "never.csv"], ["workload", "needle", "--context", 200, "-o", "never.csv"],
                        ["cost", "calibrate", "t.h5", "-o", "never.csv"]):
            self.assertIn("csv", self.fails(2, *command))
        self.assertIn("contradicts", self.fails(2, "plot", "quality", "x.csv", "-o", "never.svg", "--format", "pdf"))
        self.assertEqual([path.name for path in self.folder.glob("never*")], [])

    def test_every_command_with_results(self):
        self.ok(*self.asked, "-o", "open.csv")
        for command in (["analyze", "heads", "t.h5"], ["export", "open.csv"], ["diff", "open.csv", "open.csv"],
                        ["cost", "machines"], ["config", "reference"]):
            name = command[0] + ".jsonl"
            self.ok(*command, "-o", name)
            for line in (self.folder / name).read_text().splitlines():
                json.loads(line)


def commands_of(test, *names):
    """`names` and every command below, as help lists them."""
    yield names
    text = test.ok(*names, "--help")
    if "Subcommands:" in text:
        for line in text.split("Subcommands:\n")[1].split("\n\n")[0].splitlines():
            if re.match(r"  [a-z]", line):
                yield from commands_of(test, *names, line.split()[0])


class Help(CommandTest):
    def test_description_and_usage_come_before_at_most_four_examples(self):
        commands = list(commands_of(self))
        self.assertGreater(len(commands), 40)
        for command in commands:
            text = self.ok(*command, "--help")
            with self.subTest(command):
                usage = "Usage: " + " ".join(["kvsim", *command])
                self.assertIn("\n" + usage, text)
                self.assertTrue(text.split(usage)[0].strip())
                self.assertNotIn("Examples:", text.split(usage)[0])
                examples = text.split("\nExamples:\n")
                self.assertEqual(len(examples), 2, "no examples")
                shown = [line for line in examples[1].split("\n\n")[0].splitlines() if re.match(r"  \S", line)]
                self.assertLessEqual(len(shown), 4)
                self.assertTrue(any("kvsim " + " ".join(command) in line for line in shown), shown)
                wide = [line for line in text.splitlines() if len(line) > 80]
                self.assertTrue(all(re.fullmatch(r"  --\S+ \S+\|\S+", line) for line in wide), wide)  # one word is not broken

    def test_help_is_a_command_too(self):
        for command in [], ["replay"], ["cost", "fit"]:
            self.assertEqual(self.ok("help", *command), self.ok(*command, "--help"))
        self.assertIn("Did you mean replay", self.fails(2, "help", "repaly"))
        self.assertIn("Did you mean fit", self.fails(2, "help", "cost", "fti"))

    def test_help_names_exit_codes(self):
        self.assertIn("Exit codes: 0 ok", self.ok("--help"))

    def test_version(self):
        text = self.ok("--version")
        self.assertEqual(self.ok("-V"), text)
        for word in "kvsim 0.", "commit", "compiler", "build type", "Boost", "HDF5", "Eigen", "oneTBB":
            self.assertIn(word, text)


if __name__ == "__main__":
    kvsim_command.main()
