"""The examples of the page about running models run, and show what the page says."""
import os
import re
import unittest
import warnings

import transformers

from served_models import BEGIN, END, FAMILIES, ROOT, answering

PAGE = (ROOT / "tools" / "python" / "kvsim" / "hf" / "README.md").read_text(encoding="utf-8")


class Page(unittest.TestCase):
    def test_the_examples(self):
        section = PAGE.split("\n## In the running model\n")[1].split("\n## ")[0]
        blocks = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
        self.assertEqual(len(blocks), 3)
        said = {"__name__": "page"}
        before = os.getcwd()
        os.chdir(ROOT)
        self.addCleanup(os.chdir, before)
        exec(compile(blocks[0], "README.md", "exec"), said)
        answer, held, full = re.search(r'# "(.*)"\n.*# (\d+); a full cache takes (\d+)', blocks[0]).groups()
        out, ids, cache = said["out"], said["ids"], said["cache"]
        self.assertEqual(said["tokenizer"].decode(out[0, ids.shape[1]:]), answer)
        self.assertEqual(cache.nbytes, int(held))
        about = said["model"].config
        tokens = out.shape[1] - 1  # the last one is not read
        self.assertEqual(int(full), about.num_hidden_layers * about.num_key_value_heads * tokens * 2 * about.head_dim * 4)
        for block in blocks[1:]:
            exec(compile(block, "README.md", "exec"), said)
        self.assertEqual(said["answers"]["right"][said["answers"]["policy"] == "full"][1::2].tolist(), [1.0] * 4)


    @unittest.skipUnless(transformers.__version__ in PAGE, "the table is of another transformers")
    def test_the_table_of_evaluate_says_what_happens(self):
        table = PAGE.split(BEGIN)[1].split(END)[0].split("\n\n")[1]
        rows = re.findall(r"^\| (.*) \| ([\w, ]+) \|$", table, re.MULTILINE)[1:]
        told = {family: said for said, families in rows for family in families.split(", ")}
        self.assertEqual(set(told), set(FAMILIES))
        for family in "Gemma2", "GptOss", "OPT", "SmolLM3", "Llama4", "DeepseekV2":
            with self.subTest(family), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.assertEqual(answering(family), told[family])


if __name__ == "__main__":
    unittest.main()
