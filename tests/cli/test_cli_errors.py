#!/usr/bin/env python3
"""Tests that every wrong command line gets its exit code, and a message that says what to type instead."""
import kvsim_command
from kvsim_command import CommandTest


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
        self.assertIn("--budget is required", self.replay_fails("--policy", "h2o"))
        self.assertIn("FILE is required", self.fails(2, "replay", "--policy", "h2o", "--budget", "8"))
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
        self.assertIn("its own --policy", self.replay_fails("--policy", "h2o,tova", "--budget", "16"))

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


class Help(CommandTest):
    def test_help_begins_with_examples(self):
        for command in ([], ["replay"], ["capture"], ["trace"], ["trace", "info"], ["trace", "check"],
                        ["trace", "generate"], ["policy"], ["policy", "list"], ["policy", "show"],
                        ["analyze"], ["analyze", "hash"]):
            lines = self.ok(*command, "--help").splitlines()
            self.assertEqual(lines[0], "Examples:", command)
            self.assertTrue(lines[1].startswith("  kvsim " + " ".join(command[:1])), command)

    def test_help_names_exit_codes(self):
        self.assertIn("Exit codes: 0 ok", self.ok("--help"))

    def test_version(self):
        text = self.ok("--version")
        for word in "kvsim 0.", "commit", "compiler", "build type", "Boost", "HDF5", "Eigen", "oneTBB":
            self.assertIn(word, text)


if __name__ == "__main__":
    kvsim_command.main()
