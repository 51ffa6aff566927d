#!/usr/bin/env python3
"""Tests that a name has one writer: of two commands with one output at most one succeeds, and the file is that one's, whole.
Also that what cannot be an output is refused before any work, and what a full disk leaves."""
import os
import re
import resource
import subprocess

import h5py

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

MODEL = SOURCE / "traces/sample/model"
PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial$")
GENERATE = ("trace", "generate", "--layers", 1, "--kv-heads", 1, "--head-dim", 8)


class Outputs(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(40)))
        for name, budget in ("rows", "10,20,40"), ("others", "30,50"):
            made = cls.kvsim("replay", "t.h5", "--policy", "h2o", "--policy", "window", "--budget", budget, "--format", "csv",
                             "-o", f"{name}.csv", "--quiet")
            assert made.returncode == 0, made.stderr
        for i, policy in enumerate(("h2o", "snapkv")):
            (cls.folder / f"study{i}.json").write_text(f'{{"traces": ["t.h5"], "policies": ["{policy}"], "budgets": [20]}}')
            made = cls.kvsim("study", f"study{i}.json", "-o", f"study{i}", "--quiet")
            assert made.returncode == 0, made.stderr
        # A trace has the name of its item: then the rows of both loops join.
        os.link(cls.folder / "t.h5", cls.folder / "needle-200-s1-0.h5")
        for command in (["workload", "needle", "--context", 200, "--count", 1, "--tokenizer", MODEL, "-o", "items.jsonl"],
                        ["replay", "needle-200-s1-0.h5", "--policy", "window", "--budget", 64, "--format", "csv", "--quiet",
                         "-o", "open.csv"],
                        ["evaluate", "--model", MODEL, "--workload", "items.jsonl", "--policy", "window", "--budget", 64,
                         "--max-new-tokens", 1, "--format", "csv", "--quiet", "-o", "closed.csv"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    # Every command that writes a file, asked twice with different results; {} is the output.
    COMMANDS = {
        "replay": [("replay", "t.h5", "--policy", "h2o", "--budget", n, "--format", "csv", "--quiet", "-o", "{}")
                   for n in (20, 30)],
        "replay h5": [("replay", "t.h5", "--policy", "h2o", "--budget", n, "--format", "h5", "--quiet", "-o", "{}")
                      for n in (20, 30)],
        "decisions": [("replay", "t.h5", "--policy", "h2o", "--budget", n, "--quiet", "--decisions", "{}") for n in (20, 30)],
        "view": [("view", "t.h5", "--policy", "h2o", "--budget", n, "--quiet", "-o", "{}") for n in (20, 30)],
        "trace generate": [(*GENERATE, "--prompt-tokens", n, "-o", "{}") for n in (200, 300)],
        "trace mark": [("trace", "mark", "t.h5", "--evidence", f"{n}:{n + 9}", "-o", "{}") for n in (3, 33)],
        "capture": [("capture", "--model", SOURCE / "tests/golden/capture/llama_tied", "--tokens", "ids.txt",
                     "--max-new-tokens", n, "--quiet", "-o", "{}") for n in (1, 2)],
        "workload": [("workload", "needle", "--context", 200, "--count", n, "--tokenizer", MODEL, "-o", "{}") for n in (1, 2)],
        "evaluate": [("evaluate", "--model", MODEL, "--prompt", SOURCE / "traces/sample/prompts/copy-0500.txt", "--policy",
                      "window", "--budget", n, "--max-new-tokens", 1, "--format", "csv", "--quiet", "-o", "{}")
                     for n in (32, 64)],
        "allocate": [("allocate", "t.h5", "--policy", "h2o+pyramid", "--budget", n, "--quiet", "-o", "{}") for n in (20, 40)],
        "analyze": [("analyze", "heads", "t.h5", "--format", form, "--quiet", "-o", "{}") for form in ("csv", "json")],
        "plot": [("plot", "quality", f"{name}.csv", "-o", "{}.svg") for name in ("rows", "others")],
        "report": [("report", f"study{i}", "-o", "{}") for i in (0, 1)],
        "diff": [("diff", "rows.csv", "others.csv", "--format", form, "-o", "{}") for form in ("csv", "json")],
        "agreement": [("agreement", "open.csv", "closed.csv", "--format", form, "-o", "{}") for form in ("csv", "json")],
        "export": [("export", f"{name}.csv", "--format", "json", "-o", "{}") for name in ("rows", "others")],
        "requests generate": [("requests", "generate", "--requests", n, "--quiet", "-o", "{}") for n in (50, 60)],
        "requests convert": [("requests", "convert", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n,
                              "--quiet", "-o", "{}") for n in (50, 60)],
        "requests info": [("requests", "info", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n,
                           "--format", "csv", "--quiet", "-o", "{}") for n in (50, 60)],
        "requests batch": [("requests", "batch", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n, "--model",
                            "llama-3.1-8b", "--machine", "h100-sxm", "--format", "csv", "--quiet", "-o", "{}") for n in (50, 60)],
        "requests serve": [("requests", "serve", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n, "--model",
                            "llama-3.1-8b", "--machine", "h100-sxm", "--format", "csv", "--quiet", "-o", "{}") for n in (50, 60)],
        "requests replay": [("requests", "replay", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n,
                             "--format", "csv", "--quiet", "-o", "{}") for n in (50, 60)],
        "requests compression": [("requests", "compression", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--limit", n,
                                  "--model", "llama-3.1-8b", "--machine", "h100-sxm", "--policy", "full+kivi", "--format", "csv", "--quiet",
                                  "-o", "{}") for n in (50, 60)],
        "requests tiers": [("requests", "tiers", SOURCE / "traces/sample/requests/mooncake_conversation.jsonl.gz", "--model", "llama-3.1-8b",
                            "--machine", "h100-sxm", "--host", "64GiB", "--limit", n, "--format", "csv", "--quiet", "-o", "{}") for n in (50, 60)],
        "cost break-even": [("cost", "break-even", "--model", "llama-3.1-8b", "--machine", "h100-sxm", "--depth", n, "--format", "csv",
                             "-o", "{}") for n in (1024, 2048)],
        "cost": [("cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--policy", "h2o", "--prompt-tokens", "8K",
                  "--budget", n, "--format", "csv", "-o", "{}") for n in (512, 1024)],
        "cost --plot": [("cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--policy", "h2o", "--prompt-tokens", "8K",
                         "--budget", n, "--quiet", "--plot", "{}.svg") for n in ("10%,20%", "30%,50%")],
    }

    @staticmethod
    def at(command, output):
        return [str(word).replace("{}", output) for word in command]

    def files(self, beginning):
        return sorted(path.name for path in self.folder.glob(f"{beginning}*"))

    def content(self, name):
        """What a file says; of a trace, what does not differ from run to run."""
        path = self.folder / name
        if not h5py.is_hdf5(path):
            return path.read_bytes()
        with h5py.File(path, "r") as file:
            self.assertEqual(file.attrs["complete"], 1)
            if "tokens" not in file or "flags" not in file["tokens"]:
                return path.read_bytes()
            flags = file["tokens/flags"][...].tolist()
        return re.search(r"sound.*content (\w+)", self.ok("trace", "check", name))[1], flags

    def race(self, pair, output, *more):
        """Exit codes of two commands that run at the same time."""
        work = [subprocess.Popen([KVSIM, *self.at(command, output), *more], cwd=self.folder, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for command in pair]
        said = [each.communicate(timeout=200)[1] for each in work]
        for each, message in zip(work, said):
            if each.returncode not in (0, 5):
                self.assertRegex(message, r"is being written by another process|by another process meanwhile|exists already")
        return [each.returncode for each in work]

    def repeat(self, kind, times, *more):
        """Races of two commands; their file must always be that of one which succeeded. Returns the exit codes."""
        pair, name, codes = self.COMMANDS[kind], "-".join([kind, str(times), *more]).replace(" ", ""), []
        whole = []
        for i, command in enumerate(pair):
            done = self.kvsim(*self.at(command, f"{name}-alone{i}"))
            self.assertIn(done.returncode, (0, 5), done.stderr)  # 5: the results differ
            made, = self.files(f"{name}-alone{i}")
            whole.append(self.content(made))
        self.assertNotEqual(*whole)
        for i in range(times):
            codes.append(self.race(pair, f"{name}-{i}-both", *more))
            made, = self.files(f"{name}-{i}-both")  # and no partial file
            winners = [text for text, code in zip(whole, codes[-1]) if code in (0, 5)]
            self.assertIn(self.content(made), winners)
            (self.folder / made).unlink()
        return codes

    def test_of_two_writers_one_succeeds(self):
        for kind in self.COMMANDS:
            with self.subTest(kind):
                for codes in self.repeat(kind, 2):
                    self.assertEqual(sum(code in (0, 5) for code in codes), 1, codes)

    def test_fifty_times(self):
        for codes in self.repeat("replay", 50):
            self.assertEqual(codes.count(0), 1, codes)
            self.assertIn(max(codes), (2, 3))  # it exists, or is being written

    def test_fifty_times_with_overwrite_the_file_is_whole(self):
        for codes in self.repeat("replay", 50, "--overwrite"):
            self.assertIn(0, codes)

    def test_what_cannot_be_an_output_is_refused_at_once(self):
        os.mkfifo(self.folder / "pipe.svg")
        (self.folder / "folder.svg").mkdir()
        before = self.files("")
        for kind, (command, _) in self.COMMANDS.items():
            if kind == "report":
                continue
            with self.subTest(kind):
                for output, words in ("", "empty"), ("pipe.svg", "pipe"), ("folder.svg", "directory"):
                    named = [word.replace("{}.svg", output).replace("{}", output) for word in map(str, command)]
                    self.assertIn(words, self.fails(2, *named))
        self.assertEqual(self.files(""), before)

    def test_an_existing_output_is_refused_before_inputs_are_read(self):
        """The input is a pipe without a writer: whoever read it first would wait."""
        os.mkfifo(self.folder / "input")
        (self.folder / "old").write_text("precious")
        for command in (("export", "input"), ("plot", "quality", "input", "--format", "svg"),
                        ("agreement", "input", "closed.csv"),
                        ("evaluate", "--model", MODEL, "--prompt", "input", "--policy", "window", "--budget", 10),
                        ("capture", "--model", MODEL, "--prompt", "input"),
                        ("requests", "info", "input"), ("requests", "convert", "input"),
                        *(("requests", verb, "input", "--model", "llama-3.1-8b", "--machine", "h100-sxm") for verb in ("batch", "serve")),
                        ("requests", "generate", "--like", "input"), ("requests", "replay", "input"),
                        ("requests", "compression", "input", "--model", "llama-3.1-8b", "--machine", "h100-sxm", "--policy", "full+kivi"),
                        ("requests", "tiers", "input", "--model", "llama-3.1-8b", "--machine", "h100-sxm"),
                        ("cost", "allocators", "input", "--model", "opt-13b", "--machine", "a100-40-sxm")):
            with self.subTest(command):
                self.assertIn("exists already", self.fails(2, *command, "-o", "old"))
        self.assertEqual((self.folder / "old").read_text(), "precious")

    def test_a_link_is_never_written_through_by_its_partial_file(self):
        """The name of a partial file cannot be guessed to put a link there, as PATH.partial could."""
        (self.folder / "victim").write_text("precious")
        (self.folder / "linked.csv.partial").symlink_to("victim")
        self.ok("replay", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "-o", "linked.csv")
        self.assertEqual((self.folder / "victim").read_text(), "precious")
        self.assertTrue((self.folder / "linked.csv.partial").is_symlink())

    def test_a_full_disk_leaves_nothing(self):
        """SIGXFSZ, which a limit on file sizes sends, is left as it is by default: it would kill the process."""
        def limited(bytes_):
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))

        for kind, (command, _) in self.COMMANDS.items():
            if kind == "report":
                continue
            with self.subTest(kind):
                for limit in 1, 300:
                    done = self.kvsim(*self.at(command, "full"), preexec_fn=limited(limit))
                    if kind in ("allocate", "diff", "agreement") and done.returncode in (0, 5):
                        (self.folder / "full").unlink()  # it fits
                        continue
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertIn("File too large", done.stderr)
                    self.assertEqual(self.files("full"), [])

    def test_too_little_memory_is_no_bug(self):
        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

        done = self.kvsim("trace", "generate", "--prompt-tokens", 400000, "-o", "large.h5", preexec_fn=limit_memory)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("out of memory", done.stderr)
        self.assertNotIn("bug", done.stderr)
        self.assertEqual(self.files("large"), [])


if __name__ == "__main__":
    kvsim_command.main()
