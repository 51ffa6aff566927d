"""kvsim.hf.evaluate says what kvsim evaluate says of the same model: the same texts and counts, and numbers to rounding."""
import unittest
import warnings

import numpy as np

from served_models import SAMPLE, sample  # noqa: I100 - puts the policies below on the path

import kvsim
import kvsim.hf
from written_policies import MyH2o, MySnap

TOLERANCE = 1e-4  # absolute and relative, of numbers that follow from float32 logits
POLICIES = ["full", "snapkv(window=8)", "snapkv(window=8)+xkv", "snapkv(window=8)+adakv", "streaming_llm", "h2o", "tova", "keydiff",
            "scissorhands", "random", "h2o(prompt=stream)", "kvcrush(base=h2o)", "fastgen", "optimal"]


class AgainstTheNativeLoop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore", kvsim.Note)
        cls.model, cls.tokenizer = sample()
        cls.items = kvsim.workload("needle-multi-key", facts=4, context=200, count=2, tokenizer=SAMPLE)

    def same(self, policies, budgets, **options):
        native = kvsim.evaluate(SAMPLE, self.items, policies, budgets, elem="f32", **options)
        here = kvsim.hf.evaluate(self.model, self.tokenizer, self.items, policies, budgets, **options)
        self.assertEqual(native.columns, here.columns)
        self.assertEqual(native.units, here.units)
        self.assertEqual(len(native), len(here))
        self.assertEqual(native.settings["max_new_tokens"], here.settings["max_new_tokens"])
        for column in native.columns:
            expected, found = native[column], here[column]
            with self.subTest(column=column):
                if column.endswith("ppl"):  # exponentials of what agrees so closely, and differences of them
                    expected, found = np.arcsinh(expected), np.arcsinh(found)
                if expected.dtype == np.float64:
                    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
                else:
                    self.assertEqual(found.tolist(), expected.tolist())
        return here

    def test_before_and_after_the_question(self):
        for cut in "question", "prompt", 150:
            table = self.same(POLICIES, [0.2, 0.5], cut=cut)
            kl = table["kl"][~np.isnan(table["kl"])]
            self.assertGreater(kl.max(), 1)  # caches are cut deep enough for a mistake to show
            full = table["policy"] == "full"
            self.assertEqual(np.nanmax(table["kl"][full]), 0)  # exactly
            skipped = [text for text in table["skipped"] if text]
            self.assertTrue(skipped and all("knows the future" in text for text in skipped))

    def test_tokens_and_layers(self):
        for per in "token", "layer":
            table = self.same(["snapkv(window=8)+adakv", "h2o"], [0.2], cut="question", per=per, force="full", max_new_tokens=5)
            self.assertGreater(len(table), 8)

    def test_one_mode(self):
        self.assertEqual(set(self.same("h2o", 32, mode="greedy")["mode"]), {"greedy"})
        self.assertEqual(set(self.same("h2o", "256KiB", mode="teacher", seed=3)["mode"]), {"teacher"})

    def test_policies_written_in_python(self):
        self.same([MySnap(window=8), MyH2o, MySnap(window=8) + "xkv"], [0.3], cut="question")

    def test_what_cannot_be_asked(self):
        for expected, options in [("unknown mode", {"mode": "teach"}), ("answer or full", {"force": "none"}),
                                  ("token or layer", {"per": "head"}), ("unknown cut", {"cut": "here"}),
                                  ("nothing follows the cut", {"cut": 5000})]:
            with self.subTest(expected), self.assertRaisesRegex(kvsim.UsageError, expected):
                kvsim.hf.evaluate(self.model, self.tokenizer, self.items, "h2o", 0.2, **options)
        with self.assertRaisesRegex(kvsim.UsageError, "context"):
            plain = [{"id": "plain", "tokens": 4, "prompt": "Once upon a time", "spans": [], "answers": []}]
            kvsim.hf.evaluate(self.model, self.tokenizer, plain, "h2o", 2, cut="question")
        with self.assertRaisesRegex(kvsim.Error, "workload.jsonl line 1"):
            kvsim.hf.evaluate(self.model, self.tokenizer, [{"body": "Once upon a time"}], "h2o", 0.5)
        with self.assertRaisesRegex(kvsim.UsageError, "apply_chat_template"):
            kvsim.hf.evaluate(self.model, self.tokenizer, [{"messages": [{"role": "user", "content": "Who?"}]}], "h2o", 0.5)


if __name__ == "__main__":
    unittest.main()
