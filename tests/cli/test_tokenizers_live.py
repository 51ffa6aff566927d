#!/usr/bin/env python3
"""Compares the golden token ids of the unit tests with the installed transformers.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_tokenizers_live.py KVSIM SOURCE_DIR
"""
import json
import unittest

from torch_python import require_torch

require_torch()

import transformers  # noqa: E402 - from here on there is one

from kvsim_command import SOURCE, main  # noqa: E402

GOLDEN = SOURCE / "tests/golden/tokenizers"
transformers.logging.set_verbosity_error()


class Tokenizers(unittest.TestCase):
    def test_every_tokenizer_json_gives_the_golden_ids(self):
        texts = json.loads((GOLDEN / "texts.json").read_text())
        folders = sorted(path.parent for path in GOLDEN.glob("*/tokenizer.json"))
        self.assertEqual(len(folders), 10)
        for folder in folders:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            for text, ids in zip(texts, json.loads((folder / "ids.json").read_text())["ids"]):
                with self.subTest(folder.name, text=text):
                    self.assertEqual(tokenizer.encode(text), ids)


if __name__ == "__main__":
    main()
