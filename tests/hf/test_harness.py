"""lm-eval-harness with the model `kvsim`: what the harness's own model says with the full cache, and what kvsim's caches say."""
import json
import os
import pathlib
import tempfile
import unittest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TQDM_DISABLE="1")

import lm_eval  # noqa: E402 - after the environment
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from served_models import sample  # noqa: E402

import kvsim  # noqa: E402
import kvsim.lm_eval  # noqa: E402 - registers the model
from kvsim.hf.continuations import Continuations  # noqa: E402
from kvsim.hf.harness_model import HarnessModel  # noqa: E402

NOTES = "".join(f"The code of the {colour} safe is {code}. " for colour, code in (("red", 4721), ("blue", 9052), ("green", 1187), ("grey", 3304)))
ITEMS = [{"notes": NOTES, "colour": colour, "codes": ["4721", "9052", "1187", "3304"], "right": right}
         for right, colour in enumerate(("red", "blue", "green", "grey"))]
TEXT = "{{notes}}Question: which code has the {{colour}} safe? Answer:"


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.tokenizer = sample()
        cls.tokenizer.pad_token = cls.tokenizer.eos_token = cls.tokenizer.decode([cls.model.config.eos_token_id])
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        data = pathlib.Path(folder.name) / "safes.jsonl"
        data.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
        shared = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": folder.name}, "test_split": "test",
                  "doc_to_text": TEXT}
        cls.tasks = [
            {"task": "safe_choice", "output_type": "multiple_choice", "doc_to_choice": "{{codes}}", "doc_to_target": "{{right}}",
             "metric_list": [{"metric": "acc"}], **shared},
            {"task": "safe_answer", "output_type": "generate_until", "doc_to_target": "{{codes[right]}}",
             "generation_kwargs": {"until": ["."], "max_gen_toks": 6, "do_sample": False}, "metric_list": [{"metric": "exact_match"}], **shared}]
        cls.manager = TaskManager(include_defaults=False)

    def answers(self, model):
        """Of each task and item the responses: log-likelihoods of the choices, or a text."""
        done = lm_eval.simple_evaluate(model=model, tasks=self.tasks, task_manager=self.manager, log_samples=True, bootstrap_iters=0, verbosity="ERROR")
        return {(task, sample["doc_id"]): [response[0] for response in sample["resps"]]
                for task, samples in done["samples"].items() for sample in samples}

    def test_the_full_cache_answers_as_the_harness_does(self):
        theirs = self.answers(HFLM(self.model, tokenizer=self.tokenizer, batch_size=1))
        ours = self.answers(HarnessModel(self.model, tokenizer=self.tokenizer))
        self.assertEqual(set(theirs), {(task["task"], item) for task in self.tasks for item in range(4)})
        for (task, item), said in theirs.items():
            if task == "safe_answer":
                self.assertEqual(ours[task, item], said)
                continue
            self.assertEqual(len(said), 4)
            for (log_p, greedy), (ours_log_p, ours_greedy) in zip(said, ours[task, item], strict=True):
                self.assertAlmostEqual(log_p, ours_log_p, delta=1e-4)
                self.assertEqual(greedy, ours_greedy)

    def test_a_policy_answers_through_its_cache(self):
        said = self.answers(HarnessModel(self.model, tokenizer=self.tokenizer, policy="streaming_llm", budget="30%", question="Question:"))
        full = self.answers(HarnessModel(self.model, tokenizer=self.tokenizer))
        self.assertNotEqual(said, full)
        cut = Continuations(self.model, self.tokenizer, "streaming_llm", "30%", question="Question:")
        for item, row in enumerate(ITEMS):
            ids = self.tokenizer(TEXT.replace("{{notes}}", NOTES).replace("{{colour}}", row["colour"]))["input_ids"]
            for code, (log_p, _) in zip(row["codes"], said["safe_choice", item], strict=True):
                following = self.tokenizer(f" {code}", add_special_tokens=False)["input_ids"]
                logits = cut.logits(ids, following).log_softmax(-1)
                self.assertAlmostEqual(log_p, float(logits[range(len(following)), following].sum()), delta=1e-4)

    def test_what_it_refuses(self):
        for options, said in ({"batch_size": 4}, "one prompt at a time"), ({"policy": "h2o"}, "has no budget"):
            with self.assertRaisesRegex(kvsim.Error, said):
                HarnessModel(self.model, tokenizer=self.tokenizer, **options)
        with self.assertRaisesRegex(kvsim.Error, "one long continuation"):
            HarnessModel(self.model, tokenizer=self.tokenizer).loglikelihood_rolling([])


if __name__ == "__main__":
    unittest.main()
