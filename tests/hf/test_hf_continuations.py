"""Continuations, on which the harness's model stands, give the logits of a pass whose heads see what the policy kept."""
import unittest

import torch

from served_models import causal, masked_logits, sample

import kvsim
from kvsim.hf.continuations import Continuations

NOTES = "The code of the red safe is 4721. The code of the blue safe is 9052. The code of the green safe is 1187. "
ASKED = "Question: which code has the blue safe? Answer:"


class Logits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.tokenizer = sample()
        cls.ids = cls.tokenizer(NOTES + ASKED)["input_ids"]
        cls.notes = len(cls.tokenizer(NOTES)["input_ids"])
        cls.following = [cls.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (" 9052.", " 4721. And the red one", " no")]

    def expected(self, cache, before, following):
        """Logits of a pass in which what follows the cut sees what the cache keeps of the text before it."""
        ids = self.ids + following[:-1]
        masks = causal(self.model, cache.about, len(ids))
        for layer, mask in enumerate(masks):
            for head, kept in enumerate(cache.kept(layer)):
                kept = kept[kept < before]
                first = before - (before == len(self.ids))  # the last token of a prompt is read again, and sees itself
                mask[head, first:, :before] = False
                mask[head, first:, kept] = True
                mask[head, first:].diagonal(first).fill_(True)
        return masked_logits(self.model, ids, masks)[len(self.ids) - 1:]

    def test_the_full_cache_says_what_the_model_says(self):
        said = Continuations(self.model, self.tokenizer, "full", 1.0)
        for following in self.following:
            with torch.no_grad():
                expected = self.model(input_ids=torch.tensor([self.ids + following[:-1]])).logits[0, len(self.ids) - 1:]
            torch.testing.assert_close(said.logits(self.ids, following), expected, rtol=1e-4, atol=1e-4)

    def test_before_and_after_the_question(self):
        for question, before in (None, len(self.ids)), ("Question:", self.notes):
            said = Continuations(self.model, self.tokenizer, "snapkv(window=8)", 0.3, question=question)
            for following in self.following:
                with self.subTest(question=question, following=following):
                    found = said.logits(self.ids, following)
                    cache = said.cache(self.ids)
                    self.assertEqual(cache.policy, "snapkv")
                    self.assertAlmostEqual(cache.budget_tokens / before, 0.3, delta=0.02)
                    torch.testing.assert_close(found, self.expected(cache, before, following), rtol=1e-4, atol=1e-4)

    def test_a_prompt_that_follows_itself_is_read_once(self):
        for policy in "snapkv(window=8)", "h2o(prompt=stream)":
            said = Continuations(self.model, self.tokenizer, policy, 0.3, question="Question:")
            first = said.logits(self.ids, self.following[1])
            prompt = said._prompt
            said.logits(self.ids, self.following[0])
            self.assertTrue(torch.equal(said.logits(self.ids, self.following[1]), first))
            self.assertIs(said._prompt, prompt)
            said.logits(self.ids[1:], self.following[0])
            self.assertIsNot(said._prompt, prompt)

    def test_a_question_that_is_not_there(self):
        for question, expected in ("Frage:", "in no part"), ("The code of the red", "begins this prompt"):
            with self.assertRaisesRegex(kvsim.UsageError, expected):
                Continuations(self.model, self.tokenizer, "keydiff", 0.3, question=question).cache(self.ids[1:])  # without its <s>


if __name__ == "__main__":
    unittest.main()
