"""kvsim.hf.Cache: what it holds, what the model computes with it, and what it refuses."""
import gc
import pathlib
import tempfile
import unittest
import weakref

import numpy as np
import torch

from served_models import FAMILIES, causal, masked_logits, sample, wide  # noqa: I100 - puts the policies below on the path

import kvsim
import kvsim.hf
from written_policies import MyH2o, MySnap

TEXT = "The code of the red safe is 4721. The code of the blue safe is 9052. " * 6 + "The code of the red safe is"
TOLERANCE = 1e-4  # of logits, in float32
OFTEN_RUN = ["Llama", "Mistral", "Qwen2", "Qwen3", "Phi3"]  # these with every policy, the others with two
POLICIES = ["full", "streaming_llm(sinks=2)", "snapkv(window=4)", "snapkv(window=4)+adakv", "snapkv(window=4)+xkv", "keydiff",
            "h2o", "h2o(prompt=stream)", "tova", "scissorhands", "random"]


def kept(cache):
    return [[sorted(positions.tolist()) for positions in cache.kept(layer)] for layer in range(len(cache.layers))]


class OnTheSample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.tokenizer = sample()
        cls.ids = cls.tokenizer(TEXT, return_tensors="pt")["input_ids"]

    def generate(self, cache, ids=None):
        out = self.model.generate(self.ids if ids is None else ids, past_key_values=cache, max_new_tokens=12, do_sample=False)
        return out[0, self.ids.shape[1]:].tolist()

    def test_a_cache_of_everything_changes_nothing(self):
        plain = self.generate(None)
        for policy in "full", "h2o", "snapkv":
            self.assertEqual(self.generate(kvsim.hf.Cache(self.model, policy, 1.0 if policy == "full" else 4096)), plain)
        self.assertEqual(self.generate(None), plain)  # nor does the model differ afterwards, without it

    def test_it_holds_what_a_replay_of_the_same_run_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.h5")
            with kvsim.hf.trace(self.model, path, tokenizer=self.tokenizer):
                self.generate(None)
            for policy in "snapkv", "snapkv+xkv", "snapkv(window=8)+adakv", "h2o", "keydiff+pyramid", "expected_attention", \
                    "fastgen", MySnap, MyH2o, MySnap(window=8) + "xkv":
                with self.subTest(policy=policy):
                    cell, = kvsim.decisions(path, [policy], [0.25])
                    self.assertEqual(cell["skipped"], "")
                    cache = kvsim.hf.Cache(self.model, policy, 0.25, tokenizer=self.tokenizer)
                    cache.prefill(self.ids, chunk=100)
                    expected = [sorted(int(position) for position, first, last in lane if first == 0) for lane in cell["lanes"]]
                    self.assertEqual([lane for layer in kept(cache) for lane in layer], expected)

    def test_memory_is_freed(self):
        prompt = kvsim.hf.Cache(self.model, "full", 1.0)
        prompt.prefill(self.ids)
        cache = kvsim.hf.Cache(self.model, "snapkv(window=8)+adakv", 0.1)
        cache._hold = True  # until the dense keys have been seen
        cache._begin_prompt(self.ids[0].tolist())
        cache.feed(self.ids)
        dense = [weakref.ref(tensor) for layer in cache.layers for tensor in (layer.keys, layer.values)]
        cache._hold = False
        cache._end_prompt()
        gc.collect()
        self.assertTrue(all(ref() is None for ref in dense))
        about = cache._running.about
        row = (about.head_dim + about.v_head_dim) * 4
        lanes = about.n_layers * about.n_kv_heads
        held = sum(len(positions) for layer in range(about.n_layers) for positions in cache.kept(layer))
        self.assertEqual(held, cache.held_tokens)
        self.assertEqual(held, lanes * cache.budget_tokens)
        self.assertGreater(len({len(positions) for positions in cache.kept(1)}), 1)  # heads of different lengths
        self.assertEqual(cache.nbytes, (held + 64 * lanes) * row)  # 64 tokens of room
        decodes = kvsim.hf.Cache(self.model, "h2o", 0.1)
        decodes.prefill(self.ids)
        self.assertEqual(decodes.nbytes, lanes * decodes.budget_tokens * row)
        self.generate(decodes, torch.cat([self.ids, self.ids[:, :40]], 1))
        self.assertEqual(decodes.nbytes, lanes * decodes.budget_tokens * row)

    def test_a_cache_that_is_dropped_takes_its_memory_along(self):
        gc.disable()
        self.addCleanup(gc.enable)
        prompt = kvsim.hf.Prompt(self.model, self.ids)
        caches = [prompt.cache("h2o", 0.2), kvsim.hf.Cache(self.model, MyH2o, 0.2)]
        caches[1].prefill(self.ids)
        for cache in caches:
            cache.feed([5])
        refs = [weakref.ref(tensor) for tensor in (prompt.layers[0].keys, caches[0]._slots[0].keys, caches[1]._slots[0].keys)]
        del prompt, caches, cache
        self.assertEqual([ref() for ref in refs], [None] * 3)

    def test_the_question_may_follow_the_cut(self):
        for policy in "snapkv(window=8)", "h2o", "snapkv(window=8)+adakv", "scissorhands":
            whole = kvsim.hf.Cache(self.model, policy, 0.5)
            whole.prefill(self.ids[:, :-9])
            one_by_one = kvsim.hf.Cache(self.model, policy, 0.5)
            one_by_one.prefill(self.ids[:, :-9], chunk=64)
            at_once = whole.feed(self.ids[:, -9:])
            for token in self.ids[0, -9:].tolist():
                single = one_by_one.feed([token])
            self.assertLess(float((at_once - single).abs().max()), TOLERANCE, policy)
            self.assertEqual(kept(whole), kept(one_by_one))
            self.assertEqual(whole.get_seq_length(), self.ids.shape[1])

    def test_a_prompt_serves_several_caches(self):
        prompt = kvsim.hf.Prompt(self.model, self.ids, chunk=50)
        alone = kvsim.hf.Cache(self.model, "h2o", 0.2)
        alone.prefill(self.ids, chunk=50)
        shared = prompt.cache("h2o", 0.2)
        beside = prompt.cache("keydiff", 0.2)
        self.assertEqual(kept(alone), kept(shared))
        alone.ask_again()
        first = self.generate(alone)
        for _ in range(2):
            shared.ask_again()
            self.assertEqual(self.generate(shared), first)
            shared.rewind()
        beside.ask_again()
        self.assertNotEqual(kept(beside), kept(shared))
        self.generate(beside)

    def test_threads_and_seeds(self):
        def random(**options):
            cache = kvsim.hf.Cache(self.model, "random", 0.2, **options)
            cache.prefill(self.ids)
            return kept(cache)
        self.assertEqual(random(threads=1), random(threads=2))
        self.assertNotEqual(random(seed=0), random(seed=1))

    def test_in_half_precision(self):
        model, _ = sample()
        model = model.to(torch.bfloat16)
        cache = kvsim.hf.Cache(model, "h2o+xkv", 0.25)
        model.generate(self.ids, past_key_values=cache, max_new_tokens=4, do_sample=False)
        self.assertEqual(cache._slots[0].keys.dtype, torch.bfloat16)

    # What it refuses.

    def refuses(self, expected, work):
        with self.assertRaises(kvsim.UsageError) as caught:
            work()
        self.assertIn(expected, str(caught.exception))

    def test_policies_that_it_does_not_run(self):
        for policy, budget, expected in [("optimal", 0.2, "knows the future"), ("h2o(feedback=raw)", 0.2, "feedback=raw"),
                                         ("snapkv+kivi", 0.2, "how tokens are stored"),
                                         ("snapkv+quest", 0.2, "which tokens are read"),
                                         ("h2o*", 0.2, "one policy and one budget"), ("snapkv", 8, "keeps 32 tokens"),
                                         ("fastgen", 0.2, "special and which are punctuation"), ("snapkw", 0.2, "snapkv")]:
            with self.subTest(policy=policy):
                self.refuses(expected, lambda: kvsim.hf.Cache(self.model, policy, budget).prefill(self.ids))

    def test_calls_that_it_does_not_serve(self):
        cache = kvsim.hf.Cache(self.model, "snapkv", 0.5)
        self.refuses("[1, tokens], not [2, ", lambda: self.model(self.ids.repeat(2, 1), past_key_values=cache))
        padded = torch.ones_like(self.ids)
        padded[0, :3] = 0
        self.refuses("without padding", lambda: self.model(self.ids, attention_mask=padded, past_key_values=cache))
        self.refuses("right after the prompt", cache.ask_again)
        self.refuses("no prompt", lambda: cache.kept(0))
        cache.prefill(self.ids)
        self.refuses("read a prompt already", lambda: cache.prefill(self.ids))
        self.refuses("without a Prompt", cache.rewind)
        self.refuses("other positions", lambda: self.model(self.ids[:, :1], position_ids=torch.zeros(1, 1, dtype=torch.long),
                                                           past_key_values=cache))
        self.refuses("one sequence", lambda: cache.reorder_cache(torch.tensor([0])))
        self.refuses("gone", lambda: cache.crop(-1))
        short = kvsim.hf.Cache(self.model, "snapkv", 0.5, max_tokens=self.ids.shape[1] + 1)
        short.prefill(self.ids)
        self.refuses("the most that the cache sees", lambda: short.feed([5, 5]))

    def test_models_that_it_does_not_serve(self):
        model, _ = sample()
        with self.assertRaisesRegex(kvsim.hf.TraceError, "training mode"):
            kvsim.hf.Cache(model.train(), "snapkv", 0.5)
        with self.assertRaisesRegex(kvsim.hf.TraceError, "latent attention"):
            kvsim.hf.Cache(wide("DeepseekV3"), "snapkv", 0.5)

    def test_a_policy_that_fails_is_named(self):
        class Fails(kvsim.ScorePolicy):
            def score(self, prompt):
                raise LookupError("no such thing")

        class FailsLater(kvsim.ScorePolicy):
            def score(self, prompt):
                return np.zeros(len(prompt))

            def observe(self, step, scores):
                raise LookupError("no such step")

        with self.assertRaisesRegex(kvsim.PolicyError, "fails: layer .*no such thing") as caught:
            kvsim.hf.Cache(self.model, Fails, 0.5).prefill(self.ids)
        self.assertIsInstance(caught.exception.__cause__, LookupError)
        cache = kvsim.hf.Cache(self.model, FailsLater, 0.5)
        cache.prefill(self.ids)
        with self.assertRaisesRegex(kvsim.PolicyError, "fails_later: layer 0.*no such step"):
            cache.feed([5])
        self.refuses("forward call that failed", lambda: cache.feed([5]))


class OnTinyModels(unittest.TestCase):
    """Logits are those of one pass without a cache in which every head sees what its cache held, at every step."""

    PROMPT, NEW = 40, 9

    def check(self, model, policy):
        ids = torch.randint(3, 97, (self.PROMPT + self.NEW,), generator=torch.Generator().manual_seed(2)).tolist()
        cache = kvsim.hf.Cache(model, policy, 0.5)
        cache.prefill(ids[:self.PROMPT], chunk=17 if "+" in policy else None)
        masks = causal(model, cache._running.about, len(ids))
        streams = cache.streams
        held = [kept(cache)]
        logits = []
        for token in ids[self.PROMPT:]:
            logits.append(cache.feed([token]))
            held.append(kept(cache))
        if streams:
            return  # what each prompt token saw is not known afterwards; the native loop is the reference of these
        for step, now in enumerate(held[1:]):
            for layer, heads in enumerate(now):
                for head, positions in enumerate(heads):
                    holds = torch.zeros(len(ids), dtype=torch.bool)
                    holds[positions] = True
                    self.assertTrue(holds[self.PROMPT + step])
                    masks[layer][head, self.PROMPT + step] &= holds
        expected = masked_logits(model, ids, masks)[self.PROMPT:]
        self.assertLess(float((torch.stack(logits) - expected).abs().max()), TOLERANCE)
        full = masked_logits(model, ids, causal(model, cache._running.about, len(ids)))[self.PROMPT:]
        self.differ = max(self.differ, float((full - expected).abs().max()))

    def test_every_architecture(self):
        served = []
        for family in FAMILIES:
            # A window that is shorter than the text, and longer than what the policies keep of its end.
            model = wide(family, **({"sliding_window": 30} if "sliding_window" in FAMILIES[family] else {}))
            try:
                kvsim.hf.Cache(model, "full", 1.0).prefill([3, 4, 5])
            except kvsim.hf.TraceError:
                continue  # as kvsim.hf.trace refuses it; its page lists the reasons
            served.append(family)
            self.differ = 0.0
            for policy in POLICIES if family in OFTEN_RUN else ["snapkv(window=4)+adakv", "h2o"]:
                with self.subTest(family=family, policy=policy):
                    self.check(model, policy)
            self.assertGreater(self.differ, 100 * TOLERANCE, family)  # what is evicted matters
        self.assertLessEqual(set(OFTEN_RUN), set(served))
        self.assertGreater(len(served), 20)

    def test_caches_that_read_together(self):
        """Each holds what it holds alone, and the model says the same of each to rounding."""
        question, policies = [7, 8, 9], ["snapkv(window=4)+adakv", "h2o", "full", "tova", "keydiff", "h2o(prompt=stream)"]
        ids = torch.randint(3, 97, (self.PROMPT,), generator=torch.Generator().manual_seed(2)).tolist()
        for family in *OFTEN_RUN, "OPT", "Gemma2", "Gemma3", "Cohere2", "GptOss":
            model = wide(family, **({"sliding_window": 30} if "sliding_window" in FAMILIES[family] else {}))
            prompt = kvsim.hf.Prompt(model, ids)
            for again in False, True:
                alone, together = ([prompt.cache(policy, 0.5) for policy in policies] for _ in range(2))
                if again:
                    for cache in alone + together:
                        cache.ask_again()
                batch = kvsim.hf.CacheBatch(together)
                feed = [ids[-1:] if again else question] * len(policies)
                rows = list(range(len(policies)))
                for step in range(6):  # each its own tokens, and from some step on not all of them
                    for row, tokens, logits in zip(rows, feed, batch.feed(feed, rows)):
                        with self.subTest(family=family, policy=policies[row], again=again, step=step):
                            self.assertLess(float((logits - alone[row].feed(tokens)).abs().max()), TOLERANCE)
                            self.assertEqual(kept(together[row]), kept(alone[row]))
                            self.assertEqual(together[row].resident, alone[row].resident)
                            self.assertEqual(together[row].length, alone[row].length)
                    rows = [row for row in rows if step < 2 or row % 2]
                    feed = [[10 + step + 3 * row] for row in rows]

    def test_caches_that_cannot_read_together(self):
        prompt = kvsim.hf.Prompt(wide("Llama"), list(range(3, 33)))
        caches = [prompt.cache("h2o", 0.5) for _ in range(2)]
        caches[0].feed([5])
        for of in caches, [prompt.cache("h2o", 0.5), kvsim.hf.Prompt(wide("Llama"), list(range(3, 33))).cache("h2o", 0.5)], [], \
                [kvsim.hf.Cache(prompt._model, "h2o", 0.5)]:
            with self.assertRaisesRegex(kvsim.UsageError, "same number of tokens"):
                kvsim.hf.CacheBatch(of)
        batch = kvsim.hf.CacheBatch([prompt.cache("h2o", 0.5) for _ in range(2)])
        with self.assertRaisesRegex(kvsim.UsageError, "as many"):
            batch.feed([[5]])
        with self.assertRaisesRegex(kvsim.UsageError, "as many"):
            batch.feed([[5], [6, 7]])

    def test_eager_attention(self):
        self.differ = 0.0
        for policy in "snapkv(window=4)", "h2o":
            self.check(wide("Llama", kind="eager"), policy)

    def test_heads_that_share_nothing_and_values_of_their_own(self):
        self.differ = 0.0
        for changes in {"num_key_value_heads": 4}, {"num_key_value_heads": 1}:
            for policy in "snapkv(window=4)+adakv", "h2o", "tova":
                self.check(wide("Llama", **changes), policy)


if __name__ == "__main__":
    unittest.main()
