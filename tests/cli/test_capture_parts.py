#!/usr/bin/env python3
"""Tests the parts of tools/python/kvsim/hf that work without PyTorch, and a trace that the hook recorded with it.

Usage: test_capture_parts.py KVSIM SOURCE_DIR
"""
import json
import pathlib
import random
import re
import subprocess
import sys

import h5py
import numpy as np

from kvsim_command import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tools" / "python"))
from kvsim.hf import draws  # noqa: E402 - after the path to it
from kvsim.hf.chat import read_messages, tokenize_chat  # noqa: E402
from kvsim.writing.marks import Marks  # noqa: E402
from kvsim.hf.row_choice import parse_attention, parse_queries, sampled_positions  # noqa: E402
from kvsim.hf.sampling import Sampling, sampling_of_generate  # noqa: E402
from kvsim.writing.token_selection import SelectionError, select_tokens  # noqa: E402
from kvsim.hf.token_text import text_flags  # noqa: E402
from kvsim.writing.token_tree import ROOT, Note, TokenTree  # noqa: E402
from kvsim.writing.trace_error import TraceError  # noqa: E402
from kvsim.writing.trace_file import TraceWriter  # noqa: E402
from kvsim.writing.trace_header import DECODE, FLAGS, PROMPT, Capture, Header, Model, Segment  # noqa: E402

MODEL = SOURCE / "traces/sample/model"
HOOK = SOURCE / "tests/golden/capture/hook.h5"


class HookTrace(CommandTest):
    """Compares tests/golden/capture/hook.h5, made by make_hook_golden.py, with kvsim's own run of the same tokens."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hook = h5py.File(HOOK, "r")
        cls.addClassCleanup(cls.hook.close)
        pathlib.Path(cls.folder, "ids.json").write_text(json.dumps(cls.hook["tokens/id"][:14].tolist()))
        made = cls.kvsim("capture", "--model", MODEL, "--tokens", "ids.json", "--max-new-tokens", 5, "--ignore-eos",
                         "--elem", "f32", "--attention", "window:2", "--quiet", "-o", "native.h5")
        assert made.returncode == 0, made.stderr
        cls.native = h5py.File(pathlib.Path(cls.folder, "native.h5"), "r")
        cls.addClassCleanup(cls.native.close)

    def test_it_is_sound_and_agrees(self):
        self.assertIn("sound", self.ok("trace", "check", HOOK))
        self.assertIn("No differences", self.ok("diff", HOOK, "native.h5"))

    def test_it_says_the_same(self):
        for group in "model", "tokenizer":
            for name, value in self.native[group].attrs.items():
                self.assertEqual(self.hook[group].attrs[name], value, f"{group} {name}")
        for name in ("tokens/flags", "segments/phase", "segments/sha256", "sequences/leaf", "text/bytes", "text/offset",
                     "model/config_json", "passes/past_len"):
            np.testing.assert_array_equal(self.hook[name][...], self.native[name][...], name)
        np.testing.assert_allclose(self.hook["model/inv_freq"][...], self.native["model/inv_freq"][...], rtol=3e-7)
        np.testing.assert_allclose(self.hook["tokens/logprob"][...], self.native["tokens/logprob"][...], atol=1e-4)

    def test_replay_agrees(self):
        options = ["--policy", "window", "--policy", "h2o", "--budget", "50%"]
        for mine, theirs in zip(self.rows(HOOK, *options), self.rows("native.h5", *options)):
            for key in "attention_loss", "attention_loss_oracle", "output_error":
                self.assertAlmostEqual(mine[key], theirs[key], delta=1e-5, msg=key)


class Choices(CommandTest):
    def kept(self, choice, prompt, total):
        return [position for position in range(total) if choice.keeps(position, prompt)]

    def test_rows(self):
        self.assertEqual(self.kept(parse_queries("all", "queries", 0), 4, 6), [0, 1, 2, 3, 4, 5])
        self.assertEqual(self.kept(parse_queries("window:2", "queries", 0), 4, 6), [2, 3, 4, 5])
        self.assertEqual(self.kept(parse_queries("window:9", "queries", 0), 4, 6), [0, 1, 2, 3, 4, 5])
        self.assertEqual(self.kept(parse_attention("none", "attention"), 4, 6), [])
        self.assertEqual(self.kept(parse_attention("window:1", "attention"), 4, 6), [3, 4, 5])
        both = self.kept(parse_queries("sample:3,window:2", "queries", 5), 20, 21)
        self.assertEqual(len(both), 3 + 2 + 1)
        self.assertEqual(both[-3:], [18, 19, 20])
        for stretch in range(3):  # one position of each third of the 18 others
            self.assertEqual(sum(6 * stretch <= position < 6 * stretch + 6 for position in both[:3]), 1)
        for text in "", "window", "window:0", "window:-1", "window:2,window:3", "every", "window:2,", "sample:x":
            with self.assertRaisesRegex(TraceError, "not a choice"):
                parse_queries(text, "queries", 0)

    def test_draws_are_those_of_kvsim(self):
        """SplitMix64 from seed 0 begins with 0xe220a8397b1dcdaf: mix(0)."""
        self.assertEqual(draws._mix(0), 0xE220A8397B1DCDAF)
        self.assertEqual(draws.key_of(""), 0xCBF29CE484222325)
        self.assertEqual(draws.key_of("a"), 0xAF63DC4C8601EC8C)
        self.assertEqual(sampled_positions(5, 5, 1), [0, 1, 2, 3, 4])

    def test_queries_drawn_are_those_of_kvsim(self):
        pathlib.Path(self.folder, "ids.json").write_text(json.dumps(list(range(20, 120))))
        made = self.kvsim("capture", "--model", MODEL, "--tokens", "ids.json", "--max-new-tokens", 0, "--queries",
                          "window:4,sample:9", "--seed", 3, "--quiet", "--overwrite", "-o", "s.h5")
        self.assertEqual(made.returncode, 0, made.stderr)
        choice = parse_queries("window:4,sample:9", "queries", 3)
        with h5py.File(pathlib.Path(self.folder, "s.h5"), "r") as file:
            self.assertEqual(file["layers/0000/q_token"][...].tolist(), self.kept(choice, 100, 100))

    def test_tokens_drawn(self):
        """Logits log(1, 2, 5): probabilities 1/8, 2/8, 5/8; 4,000 draws have a standard error of at most 0.008."""
        logits = np.log(np.array([1, 2, 5], np.float32))
        self.assertEqual(Sampling().choose(np.array([1, 3, 3, 2], np.float32), 0), 1)

        def shares(**options):
            drawn = [Sampling(seed=1, **options).choose(logits, step) for step in range(4000)]
            return np.bincount(drawn, minlength=3) / 4000

        np.testing.assert_allclose(shares(temperature=1.0), [1 / 8, 2 / 8, 5 / 8], atol=0.03)
        # Halving the temperature squares the odds: 1, 4, 25.
        np.testing.assert_allclose(shares(temperature=0.5), [1 / 30, 4 / 30, 25 / 30], atol=0.03)
        np.testing.assert_allclose(shares(temperature=1.0, top_k=2), [0, 2 / 7, 5 / 7], atol=0.03)
        np.testing.assert_allclose(shares(temperature=1.0, top_p=0.5), [0, 0, 1])
        np.testing.assert_allclose(shares(temperature=1.0, top_p=0.7), [0, 2 / 7, 5 / 7], atol=0.03)
        with self.assertRaisesRegex(TraceError, "not finite"):
            Sampling().choose(np.array([1, np.nan], np.float32), 0)

    def test_what_generate_goes_by_in_words(self):
        for options, words in (({"temperature": 0.5}, "greedy"), ({"do_sample": True}, "from the whole distribution"),
                               ({"do_sample": True, "temperature": 0.5, "top_k": 50, "top_p": 1.0}, "temperature 0.5, top-k 50"),
                               ({"do_sample": True, "top_k": 0, "top_p": 0.9, "min_p": 0.1}, "top-p 0.9, min-p 0.1")):
            self.assertEqual(sampling_of_generate(options.get), words)


class Tree(CommandTest):
    def run_ids(self, tree, tip, ids, phase=PROMPT, **note):
        """Runs one forward call; returns its last token."""
        first = len(tree)
        tip, known = tree.follow(tip, ids)
        for token_id in ids[known:]:
            tip = tree.append(tip, token_id, phase, Note(**note), 0.0)
        tree.called(first, 100 * first, 60)
        return tip

    def cut(self, tree):
        segments, owner = tree.segments()
        return [(s.parent, s.count, s.phase, s.turn) for s in segments], owner

    def test_a_plain_run(self):
        tree = TokenTree()
        tip = self.run_ids(tree, ROOT, [5, 6, 7])
        for token_id in 8, 9:
            tip = self.run_ids(tree, tip, [token_id], DECODE)
        self.assertEqual(self.cut(tree), ([(-1, 3, 0, 0), (0, 2, 1, 0)], [0, 0, 0, 1, 1]))
        self.assertEqual(tree.flags, [0, 0, 0, 4, 4])

    def test_a_branch_inside_a_call_cuts_segment_and_call(self):
        tree = TokenTree()
        self.run_ids(tree, ROOT, [1, 2, 3, 4, 5, 6])
        self.run_ids(tree, ROOT, [1, 2, 7])
        self.run_ids(tree, ROOT, [1, 2, 3, 4])  # no new tokens
        self.assertEqual(self.cut(tree)[0], [(-1, 2, 0, 0), (0, 4, 0, 0), (0, 1, 0, 0)])
        passes = tree.passes(self.cut(tree)[1])
        self.assertEqual([(p.segment, p.begin, p.q_len, p.start_ns, p.dur_ns) for p in passes],
                         [(0, 0, 2, 0, 20), (1, 2, 4, 20, 40), (2, 6, 1, 600, 60)])

    def test_a_branch_at_the_end_of_the_file_needs_no_cut(self):
        """A token after the last token continues its segment; a second successor of that token splits it."""
        tree = TokenTree()
        tip = self.run_ids(tree, ROOT, [1, 2])
        self.run_ids(tree, tip, [3])
        self.assertEqual(self.cut(tree)[0], [(-1, 3, 0, 0)])
        self.run_ids(tree, tip, [4])
        self.assertEqual(self.cut(tree)[0], [(-1, 2, 0, 0), (0, 1, 0, 0), (0, 1, 0, 0)])

    def test_turns_and_cut_paths(self):
        tree = TokenTree()
        tip = self.run_ids(tree, ROOT, [1, 2])
        tip = self.run_ids(tree, tip, [3], DECODE)
        tip = self.run_ids(tree, tip, [4, 5])
        tip = self.run_ids(tree, tip, [6], DECODE)
        self.assertEqual(self.cut(tree)[0], [(-1, 2, 0, 0), (0, 1, 1, 0), (1, 2, 0, 1), (2, 1, 1, 1)])
        self.assertEqual([tree.cut(tip, n) for n in (6, 3, 0)], [5, 2, ROOT])
        self.assertEqual(tree.follow(ROOT, [1, 2, 3, 9]), (2, 3))

    def test_two_roots(self):
        tree = TokenTree()
        self.run_ids(tree, ROOT, [1])
        self.run_ids(tree, ROOT, [2])
        self.assertEqual(self.cut(tree)[0], [(-1, 1, 0, 0), (-1, 1, 0, 0)])


class Words:
    """A tokenizer whose tokens are words with the space before them."""
    is_fast = True
    chat_template = "given"

    def __init__(self, stable=True):
        self._stable = stable

    def apply_chat_template(self, messages, tokenize, add_generation_prompt=False):
        text = "".join(f"<{m['role']}> {m['content'].strip()} <end>" for m in messages)
        head = "" if self._stable else f"{len(messages)} messages "
        return head + text + ("<assistant>" if add_generation_prompt else "")

    def __call__(self, text, add_special_tokens, return_offsets_mapping):
        spans = [match.span() for match in re.finditer(r" ?[^ <]+|<[a-z]+>| ", text)]
        return {"input_ids": list(range(len(spans))), "offset_mapping": spans}


class Chat(CommandTest):
    MESSAGES = [{"role": "user", "content": "hi there"}, {"role": "assistant", "content": "yes"},
                {"role": "user", "content": " bye\n"}]

    def test_roles_turns_and_markup(self):
        ids, notes, known = tokenize_chat(Words(), self.MESSAGES, "chat")
        # <user>| hi| there| |<end>|<assistant>| yes| |<end>|<user>| bye| |<end>|<assistant>
        self.assertEqual(len(ids), 14)
        self.assertEqual([note.role for note in notes], [2] * 5 + [3] * 4 + [2] * 4 + [3])
        self.assertEqual([note.turn for note in notes], [0] * 9 + [1] * 5)
        self.assertEqual([t for t, note in enumerate(notes) if not note.flags & FLAGS["markup"]], [1, 2, 6, 10])
        self.assertEqual(known, FLAGS["markup"])

    def test_a_template_that_rewrites_what_came_before(self):
        """Messages then end with their contents."""
        _, notes, _ = tokenize_chat(Words(stable=False), self.MESSAGES, "chat")
        # 3| messages| |<user>| hi| there| |<end>|<assistant>| yes| |<end>|<user>| bye| |<end>|<assistant>
        self.assertEqual([note.role for note in notes], [2] * 6 + [3] * 4 + [2] * 4 + [3] * 3)

    def test_mistakes(self):
        for messages in {}, [], ["hi"], [{"role": "user"}], [{"role": "user", "content": 3}]:
            with self.assertRaises(TraceError):
                read_messages(messages, "chat")


class Text(CommandTest):
    def test_flags(self):
        cases = {b" \n": "white_space", "\u3000".encode(): "white_space", b" ,": "punctuation", "\u20ac".encode(): "punctuation",
                 b" 12": "digit", "\u0664".encode(): "digit"}
        for data, name in cases.items():
            self.assertEqual(text_flags(data), FLAGS[name], data)
        for data in b"", b"\xe2\x82", b"a1", b"1,", "\u00bd".encode(), b"\x1c":
            self.assertEqual(text_flags(data), 0, data)

    def test_flags_of_kvsim(self):
        prompt = pathlib.Path(self.folder, "mixed.txt")
        prompt.write_text("Well, 12 apples -- and\n\n3.5 m\u00b2?! \u6771\u4eac \u0664\u0665  \t(x + 1) \U0001f600 \u00bd\n")
        self.ok("capture", "--model", MODEL, "--prompt", prompt, "--max-new-tokens", 0, "--quiet", "--overwrite", "-o", "m.h5")
        with h5py.File(pathlib.Path(self.folder, "m.h5"), "r") as file:
            offset, data = file["text/offset"][...], file["text/bytes"][...].tobytes()
            flags = file["tokens/flags"][...]
        for token, flag in enumerate(flags):
            if not flag & FLAGS["special"]:
                self.assertEqual(text_flags(data[offset[token]:offset[token + 1]]), flag, token)


def marked_tree(segments, words, name):
    """Writes a trace of these segments, whose tokens spell these words; its tensors are zeros."""
    model = Model(1, 1, 1, 2, 10, rope_theta=10000.0)
    header = Header(Capture("synthetic"), [1] * len(words), segments, token_flags=[0] * len(words), token_text=words)
    with TraceWriter(name, model, "f32", overwrite=True) as writer:
        for tensor in "kvq":
            writer.append(tensor, 0, np.zeros((1, len(words), 2), "<f4"))
        writer.finish(header)
    return header


class PartsOfPrompts(CommandTest):
    """The hook and kvsim trace mark select the same tokens for the parts of a prompt."""

    def native(self, *arguments):
        """Flags and known bits, or the first line of the refusal."""
        done = self.kvsim("trace", "mark", "tree.h5", *arguments, "--overwrite", "-o", "marked.h5")
        if done.returncode != 0:
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr.splitlines()[0].removeprefix("kvsim: ")
        with h5py.File(self.folder / "marked.h5") as file:
            return file["tokens/flags"][...].tolist(), int(file["tokens"].attrs["flags_known"])

    def hooked(self, header, part, said, occurrence):
        header.token_flags, header.flags_known = [0] * len(header.token_id), 0
        try:
            Marks({part: said}, occurrence, "--{}").put(header)
        except SelectionError as error:
            return str(error).splitlines()[0]
        return header.token_flags, header.flags_known

    def test_a_worked_example(self):
        segments = [Segment(3), Segment(2, 0), Segment(2, 1, DECODE), Segment(2, 0)]
        words = [b"a b", b"ox ", b"of", b" tea", b"?", b" of", b" tea", b" pears", b"?"]
        for said, tokens in (("box", [0, 1]), ("of pears", [2, 7]), ("box of tea", [0, 1, 2, 3]), ("of tea", [2, 3]),
                             ("3:5,0", [0, 3, 4]), ("text:?", None), ("4:6", None), ("tea p", None)):
            with self.subTest(said):
                if tokens is None:
                    self.assertRaises(SelectionError, select_tokens, segments, words, said)
                else:
                    self.assertEqual(select_tokens(segments, words, said), tokens)
        self.assertEqual(select_tokens(segments, words, "?", "all"), [4, 8])
        self.assertEqual(select_tokens(segments, words, "?", 2), [8])
        self.assertRaisesRegex(SelectionError, "stores no text", select_tokens, segments, None, "box")
        for wrong in 0, -1, "some", 1.5, True:
            self.assertRaisesRegex(SelectionError, "neither a number from 1 nor", Marks, {"evidence": "x"}, wrong)
        self.assertRaisesRegex(SelectionError, "not a text", Marks, {"evidence": [3]})

    def test_random_trees(self):
        draw, marked, refused = random.Random(7), 0, set()
        for _ in range(25):
            segments, words = [], []
            for index in range(draw.randint(1, 5)):
                count = draw.randint(1, 5)
                segments.append(Segment(count, draw.randrange(index) if index else -1,
                                        DECODE if index and draw.random() < 0.3 else PROMPT))
                words += ["".join(draw.choices("abc\u20ac", k=draw.randint(0, 2))).encode() for _ in range(count)]
            header = marked_tree(segments, words, str(self.folder / "tree.h5"))
            for _ in range(8):
                part = draw.choice(["context", "question", "evidence"])
                said = draw.choice(["".join(draw.choices("abc\u20ac", k=draw.randint(1, 3))),
                                    f"{draw.randint(0, 9)}:{draw.randint(0, 15)},{draw.randint(0, 9)}"])
                occurrence = draw.choice([None, "all", 1, 3])
                told = ["--occurrence", occurrence] if occurrence else []
                native, hooked = self.native(f"--{part}", said, *told), self.hooked(header, part, said, occurrence)
                with self.subTest(segments=segments, words=words, said=said, occurrence=occurrence):
                    if isinstance(native, str) and "--occurrence" in native:  # kvsim's message names its option, the
                                                                              # hook's the part
                        self.assertIn("occurrence 3: ", hooked)
                        refused.add("occurrence")
                        continue
                    self.assertEqual(hooked, native)
                marked += not isinstance(native, str)
                refused.update(word for word in ("not in the prompt", "times", "holds no token", "beyond", "an answer")
                               if isinstance(native, str) and word in native)
        self.assertGreater(marked, 40)
        self.assertEqual(len(refused), 6, refused)


class Tool(CommandTest):
    """tools/python/capture_hf.py works without PyTorch where it needs none."""

    def tool(self, *arguments):
        return subprocess.run(["/usr/bin/python3", SOURCE / "tools/python/capture_hf.py", *arguments], cwd=self.folder,
                              capture_output=True, text=True, check=False)

    def test_help_begins_with_examples(self):
        done = self.tool("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("Examples:\n  capture_hf.py "))

    def test_mistakes(self):
        for arguments, message in ((["m", "--prompt", "p", "-o", "x", "--promt", "q"], "Did you mean --prompt"),
                                   (["m", "-o", "x"], "--prompt --tokens --chat"),
                                   (["m", "--prompt", "p", "-o", "t.h5"], "t.h5: exists already"),
                                   (["m", "--prompt", "p", "-o", "x", "--device", "gpu"], "cpu, cuda or cuda:N"),
                                   (["m", "--prompt", "p", "-o", "x", "--top-k", "5"], "Add --temperature")):
            done = self.tool(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), message)
            self.assertTrue(done.stderr.startswith("capture_hf.py: "), done.stderr)
            self.assertIn(message, done.stderr)

    def test_what_is_missing_is_said(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            self.skipTest("this Python has PyTorch")
        done = self.tool("m", "--prompt", "p", "-o", "x")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("pip install torch transformers h5py", done.stderr)


if __name__ == "__main__":
    main()
