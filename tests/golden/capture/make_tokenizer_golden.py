#!/usr/bin/env python3
"""Makes tokenizers.json: small byte-level BPE tokenizers and the ids Hugging Face's `tokenizers` gives for mixed text.

    python3 tests/golden/capture/make_tokenizer_golden.py        (needs tokenizers; wrote with 0.23)

Each variant is trained on this file and a paragraph in other languages, and has the shape of a published family.
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = [
    pathlib.Path(__file__).read_text(),
    "Où est passé l'élève ? Il n'a pas été là hier, c'était déjà l'été à Besançon ; ça m'étonne, voilà tout.",
    "東京は日本の首都です。今日はとても暑いですね。私は猫が好きです。東京タワーへ行きました。",
    "The quick brown fox doesn't jump over the lazy dog; it's 12345 times that they've said we'll go, I'd think.",
    "for (int i = 0; i < 100; ++i) {\n    sum += values[i] * 2;\n\treturn sum;\n}\n\n\n",
    "😀 emoji 👩‍👩‍👧 family 🇯🇵 flag, \u00bd \u0664\u0665 \u2167 numbers",
]

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox doesn't jump; it's 1234567 times. WE'LL see, I'D say they'VE gone.",
    "def f(x):\n    return x ** 2  # squares\n\n\nprint(f(3))\n",
    "\tif (a && b) {\r\n\t\tc[10] = 0xFF;\r\n\t}\r\n",
    "Où est l'élève ? C'était déjà l'été à Besançon, ça m'étonne.",
    "e\u0301le\u0300ve composed from parts, \u00e9l\u00e8ve composed already, \u212bngstr\u00f6m",
    "東京は日本の首都です。今日は2026年11月20日。",
    "😀👍🏽 👩‍👩‍👧‍👦 🇫🇷!",
    "a  b   c    d     \n   e\n\n  \n f  ",
    "            twelve spaces, then none",
    "\u00a0no-break\u2003em space\u3000ideographic\u0085next line\u000bvertical",
    "½ ٤٥ Ⅷ ² 12 345 6789 1,000.50",
    "<s>special<|end|>tokens <|end|> in text</s> and <tag> <mask> ones<mask>  <tag>",
    "nul \u0000 and del \u007f and \u0001 control",
    "ﬁ ligature İstanbul ß ſ'ſ 'S 'ſ",
    "x" * 300 + "ab" * 200,
    "ÀÉÎ àéî Ωμέγα Привет мир שלום العربية हिन्दी ภาษาไทย 한국어",
]


def tokenizer(pre, normalizer=None, post=None, vocab=420, ignore_merges=False, prefix_space=False):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = pre
    if normalizer:
        made.normalizer = normalizer
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<s>", "</s>", "<|end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if post:
        made.post_processor = post
    return made


BOS = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
BOTH = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
byte_level = pre_tokenizers.ByteLevel


def variants():
    yield "gpt2", tokenizer(byte_level(add_prefix_space=False), post=BOS)
    yield "llama3", tokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                 byte_level(add_prefix_space=False, use_regex=False)]),
        post=processors.Sequence([processors.ByteLevel(trim_offsets=False), BOS]), ignore_merges=True)
    qwen = tokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"),
                                 byte_level(add_prefix_space=False, use_regex=False)]),
        normalizer=normalizers.NFC(), post=processors.ByteLevel(trim_offsets=False))
    qwen.add_tokens([AddedToken("<tag>", normalized=True), AddedToken("él", normalized=True)])
    yield "qwen", qwen
    yield "smollm", tokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]),
        post=processors.ByteLevel())
    mask = tokenizer(byte_level(add_prefix_space=True), post=BOTH)
    mask.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])
    mask.add_tokens([AddedToken("<ta", normalized=False), AddedToken("<tag>", normalized=False)])
    yield "prefix_space", mask
    yield "dropped_words", tokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Digits(individual_digits=False),
                                 pre_tokenizers.Split(Regex(r"[\p{L}\p{M}]+|[^\p{L}\p{M}\s]+"), "removed", invert=True),
                                 byte_level(add_prefix_space=False, use_regex=False)]))


def main():
    golden = []
    for name, made in variants():
        document = json.loads(made.to_str())
        if name == "smollm":  # the older spelling of merges
            document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
            assert Tokenizer.from_str(json.dumps(document)).encode(TEXTS[3]).ids == made.encode(TEXTS[3]).ids
        golden.append({"name": name, "tokenizer": json.dumps(document, ensure_ascii=False),
                       "ids": [made.encode(text).ids for text in TEXTS]})
    (HERE / "tokenizers.json").write_text(
        json.dumps({"texts": TEXTS, "tokenizers": golden}, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
