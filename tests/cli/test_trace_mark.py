#!/usr/bin/env python3
"""Tests kvsim trace mark: parts of a recorded prompt are marked after the run, in a copy that is otherwise the same."""
import hashlib
import json
import re

import h5py
import numpy as np

import kvsim_command
from kvsim_command import SOURCE, CommandTest, without_digests

MODEL = SOURCE / "traces/sample/model"
FLAG = {"question": 8, "context": 16, "evidence": 32}
PROMPT = "The code of the red safe is 4721. The code of the blue safe is 9980. What is the code of the red safe?"


def everything(path):
    """Every dataset and attribute of a file except token flags, by path, as bytes."""
    found = {}

    def visit(name, thing):
        for key, value in thing.attrs.items():
            found[f"{name}@{key}"] = (str(np.asarray(value).dtype), np.asarray(value).tobytes())
        if isinstance(thing, h5py.Dataset):
            found[name] = (thing.shape, str(thing.dtype), str(thing.chunks), thing.fletcher32, thing[...].tobytes())

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
    del found["tokens/flags"], found["tokens/flags@sha256"], found["tokens@flags_known"]
    return found


class Mark(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "prompt.txt").write_text(PROMPT)
        made = cls.kvsim("capture", "--model", MODEL, "--prompt", "prompt.txt", "--max-new-tokens", 6, "--ignore-eos",
                         "--attention", "window:4", "--output-weights", "--column-statistics", "--quiet", "-o", "run.h5")
        assert made.returncode == 0, made.stderr
        with h5py.File(cls.folder / "run.h5") as file:
            offset, text = file["text/offset"][:].tolist(), file["text/bytes"][:].tobytes()
            cls.prompt_tokens = int(file["segments/count"][0])
        cls.words = [text[a:b].decode() for a, b in zip(offset, offset[1:])]

    def marks(self, name):
        """(tokens with each flag, the known flags)"""
        with h5py.File(self.folder / name) as file:
            flags, known = file["tokens/flags"][:], int(file["tokens"].attrs["flags_known"])
        return {role: np.flatnonzero(flags & bit).tolist() for role, bit in FLAG.items()}, known & 0b111000

    def mark(self, *arguments, source="run.h5"):
        self.ok("trace", "mark", source, *arguments, "--overwrite", "-o", "marked.h5")
        return self.marks("marked.h5")

    def spelled(self, tokens):
        return "".join(self.words[token] for token in tokens)

    def test_the_copy_is_the_trace_with_other_flags(self):
        before = hashlib.sha256((self.folder / "run.h5").read_bytes()).hexdigest()
        with h5py.File(self.folder / "run.h5", "r") as file:
            flags, known = file["tokens/flags"][:], int(file["tokens"].attrs["flags_known"])
        out = self.ok("trace", "mark", "run.h5", "--evidence", "red safe is 4721", "-o", "copy.h5")
        self.assertEqual(hashlib.sha256((self.folder / "run.h5").read_bytes()).hexdigest(), before)
        self.assertEqual(everything(self.folder / "run.h5"), everything(self.folder / "copy.h5"))
        with h5py.File(self.folder / "copy.h5") as file:
            self.assertEqual((file["tokens/flags"][:] & ~32).tolist(), flags.tolist())
            self.assertEqual(int(file["tokens"].attrs["flags_known"]), known | 32)
        for line in self.ok("trace", "check", "run.h5", "copy.h5", "-q").splitlines():
            self.assertIn("sound", line)
        self.ok("diff", "run.h5", "copy.h5", "--tolerance", 0, "--quiet")
        evidence = self.marks("copy.h5")[0]["evidence"]
        said = f"evidence {len(evidence)} tokens ({evidence[0]}:{evidence[-1] + 1})"
        self.assertEqual(out, f"copy.h5: {said}\n")
        self.assertRegex(self.ok("trace", "info", "copy.h5"), rf"(?m)^marked +{re.escape(said)}$")
        self.assertEqual(json.loads(self.ok("trace", "info", "copy.h5", "--format", "json"))["marked_tokens"],
                         {"context": None, "question": None, "evidence": len(evidence)})
        self.assertNotIn("marked ", self.ok("trace", "info", "run.h5"))

    def test_what_a_later_minor_version_adds_is_kept(self):
        data = (self.folder / "run.h5").read_bytes()
        (self.folder / "later.h5").write_bytes(data)
        with h5py.File(self.folder / "later.h5", "r+") as file:
            file.attrs.modify("schema_minor", np.uint16(9))
            file["layers/0002"].create_dataset("lse", data=np.arange(40, dtype="<f4").reshape(8, 5), chunks=(1, 5))
            file["tokens"].attrs["novelty"] = np.uint8(3)
        self.mark("--evidence", "red safe is", source="later.h5")
        self.assertEqual(everything(self.folder / "later.h5"), everything(self.folder / "marked.h5"))

    def test_text_means_every_token_that_spells_a_part_of_it(self):
        marks, known = self.mark("--evidence", "ed safe is 47")
        self.assertEqual(known, 32)
        text, begin = self.spelled(range(self.prompt_tokens)), 0
        at = text.index("ed safe is 47")
        for token in range(self.prompt_tokens):
            end = begin + len(self.words[token])
            self.assertEqual(token in marks["evidence"], begin < at + 13 and at < end, token)
            begin = end

    def test_numbers_mean_tokens(self):
        marks, known = self.mark("--evidence", "3:6,9", "--context", "1:20", "--question", "20:24", "--question", "25")
        self.assertEqual(marks, {"evidence": [3, 4, 5, 9], "context": list(range(1, 20)), "question": [20, 21, 22, 23, 25]})
        self.assertEqual(known, 8 + 16 + 32)
        self.assertEqual(self.spelled(self.mark("--evidence", "text:4721")[0]["evidence"]).strip(), "4721")

    def test_marks_add_up_until_they_are_cleared(self):
        self.mark("--evidence", "4721.", "--context", "1:20")
        (self.folder / "marked.h5").rename(self.folder / "first.h5")
        marks, known = self.mark("--evidence", "text:9980", source="first.h5")
        self.assertEqual(known, 16 + 32)
        self.assertEqual(re.findall(r"\d+", self.spelled(marks["evidence"])), ["4721", "9980"])
        self.assertEqual(marks["context"], list(range(1, 20)))
        marks, known = self.mark("--clear", "evidence", "--evidence", "text:9980", source="first.h5")
        self.assertEqual((self.spelled(marks["evidence"]).strip(), known), ("9980", 16 + 32))
        marks, known = self.mark("--clear", "evidence", "--clear", "context", source="first.h5")
        self.assertEqual((marks["evidence"], marks["context"], known), ([], [], 0))
        with h5py.File(self.folder / "first.h5", "r+") as file:  # unknown bits do not become marks
            without_digests(file)
            file["tokens/flags"][...] |= 8
        self.assertEqual(self.mark("--question", "What is", source="first.h5")[0]["question"],
                         self.mark("--question", "What is")[0]["question"])

    def test_text_that_occurs_several_times(self):
        message = self.fails(2, "trace", "mark", "run.h5", "--evidence", "red safe", "-o", "no.h5")
        for words in '--evidence: "red safe" is in the prompt 2 times', "--occurrence":
            self.assertIn(words, message)
        first, second = (self.mark("--evidence", "red safe", "--occurrence", n)[0]["evidence"] for n in (1, 2))
        self.assertLess(first[-1], second[0])
        self.assertEqual(self.mark("--evidence", "red safe", "--occurrence", "all")[0]["evidence"], first + second)
        for wrong in "3", "0", "-1", "some", "99999999999999":
            self.assertIn("--occurrence", self.fails(2, "trace", "mark", "run.h5", "--evidence", "red safe", "--occurrence", wrong,
                                                     "-o", "no.h5"))

    def test_mistakes(self):
        self.ok("capture", "--model", MODEL, "--prompt", "prompt.txt", "--max-new-tokens", 0, "--quiet", "-o", "mine.h5")
        for code, options, words in (
                (2, ["--evidence", "green safe"], '--evidence: "green safe" is not in the prompt'),
                (2, ["--context", ""], "--context: the text is empty"),
                (2, ["--question", "5:5"], "--question: the range 5:5 holds no token"),
                (2, ["--question", "5:x,"], "is not in the prompt"),
                (2, ["--question", "5:6:7"], "names no tokens"),
                (2, ["--evidence", "4721"], "For text put text: before it."),
                (2, ["--evidence", f"{self.prompt_tokens - 1}:{self.prompt_tokens + 1}"], "belongs to an answer"),
                (2, [], "nothing to mark"),
                (2, ["--clear", "all"], "--clear"),
                (2, ["--evidense", "x"], "--evidense"),
                (2, ["--evidence", "4721.", "-o", "mine.h5"], "exists already"),
                (2, ["--evidence", "4721.", "-o", "run.h5", "--overwrite"], "read by this command"),
                (3, ["--evidence", "4721.", "-o", "no/such/folder.h5"], "No such file or directory")):
            with self.subTest(options=options):
                output = [] if "-o" in options else ["-o", "no.h5"]
                self.assertIn(words, self.fails(code, "trace", "mark", "run.h5", *options, *output))
        self.assertIn("stores no text", self.fails(2, "trace", "mark", "t.h5", "--evidence", "safe", "-o", "no.h5"))
        self.ok("trace", "mark", "t.h5", "--evidence", "3:5", "-o", "mute.h5")
        self.assertEqual(self.marks("mute.h5"), ({"question": [], "context": [], "evidence": [3, 4]}, 32))
        (self.folder / "text").write_text("hello")
        self.assertIn("is not an HDF5 file", self.fails(3, "trace", "mark", "text", "--evidence", "3", "-o", "no.h5"))
        self.assertEqual(list(self.folder.glob("no.h5*")), [])

    def test_marks_are_those_of_a_workload(self):
        """The prompt of a workload, captured as plain text and marked, has the flags that capture --workload gives it."""
        for kind in "needle-multi-key", "variables", "passkey", "turns":
            with self.subTest(kind):
                self.ok("workload", kind, "--context", 300, "--tokenizer", MODEL, "--count", 1, "-o", "p.jsonl", "--overwrite")
                item = json.loads((self.folder / "p.jsonl").read_text())
                capture = ["capture", "--model", MODEL, "--max-new-tokens", 3, "--ignore-eos", "--quiet", "--overwrite"]
                self.ok(*capture, "--workload", "p.jsonl", "-o", "expected.h5")
                (self.folder / "plain.txt").write_bytes(item["prompt"].encode())
                self.ok(*capture, "--prompt", "plain.txt", "-o", "plain.h5")
                prompt, source = item["prompt"].encode(), "plain.h5"
                for index, span in enumerate(item["spans"]):
                    text = prompt[span["begin"]:span["end"]]
                    before = sum(prompt.startswith(text, at) for at in range(span["begin"]))
                    self.ok("trace", "mark", source, f"--{span['role']}=text:{text.decode()}", "--occurrence", before + 1, "-o",
                            f"{kind}-{index}.h5")
                    source = f"{kind}-{index}.h5"
                with h5py.File(self.folder / "expected.h5") as expected, h5py.File(self.folder / source) as marked:
                    self.assertEqual(marked["tokens/flags"][:].tolist(), expected["tokens/flags"][:].tolist())
                    self.assertEqual(marked["tokens"].attrs["flags_known"], expected["tokens"].attrs["flags_known"])
                    for role in FLAG:
                        self.assertTrue(np.any(marked["tokens/flags"][:] & FLAG[role]), role)


if __name__ == "__main__":
    kvsim_command.main()
