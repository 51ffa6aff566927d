#!/usr/bin/env python3
"""Makes the golden tokenizers: small ones of every published shape, and the ids the reference gives for hard text.

    python3 make_tokenizers.py json            (needs tokenizers; wrote with 0.23.3)
    python3 make_tokenizers.py sentencepiece   (needs transformers 4 and sentencepiece; wrote with 4.57.1, the
                                                last line whose Llama tokenizer runs SentencePiece itself, and 0.1.97)

texts.json: the texts. Each folder: a tokenizer as a checkpoint has it, and ids.json: `ids` of every text, and
`decoded`, what the reference makes of them without special tokens (null: the text itself, special tokens aside).
"""
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

MULTILINGUAL = [
    "Où est passé l'élève ? Il n'a pas été là hier, c'était déjà l'été à Besançon ; ça m'étonne, voilà tout.",
    "東京は日本の首都です。今日はとても暑いですね。私は猫が好きです。東京タワーへ行きました。", "人工智能正在改变世界。北京是中国的首都。",
    "한국어는 한국에서 사용되는 언어입니다. 서울은 대한민국의 수도이다.", "Привет, мир! Москва — столица России. Сегодня хорошая погода.",
    "مرحبا بالعالم. القاهرة عاصمة مصر.", "नमस्ते दुनिया। दिल्ली भारत की राजधानी है।", "שלום עולם", "สวัสดีชาวโลก กรุงเทพมหานคร",
    "Ελλάδα, Αθήνα· καλημέρα κόσμε", "Việt Nam là một đất nước xinh đẹp.", "Çok güzel bir gün, İstanbul ılık.",
    "The quick brown fox doesn't jump over the lazy dog; it's 12345 times that they've said we'll go, I'd think.",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i] * 3.14159;\n}\nreturn sum / 2; // done\n",
    "def f(x):\n    if x is None:\n        return 0\n    return x ** 2 + 1\n", "2024-01-31 23:59:59.999, 1,234,567.89 €; 50 % of £100",
    "😀 👍🏽 👩‍👩‍👧‍👦 🇫🇷 ✓ → ∑ ∞ ½ ² ③",
]

SPECIALS = {
    "gpt2": ["<|endoftext|>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "smollm2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"],
    "llama2": ["<unk>", "<s>", "</s>"],
}

HARD = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", " \t ", "\u00a0", "\u00a0\u00a0x", "\u2003x\u3000y", "a\u2028b\u2029c",
    "\u0085x\u000b\u000cy", "a", " a", "  a", "a ", "a  ", "a\n", "\na", " \na", "\n a", "a \n b\n\n\n  c   \n", "Hello world", "Hello  world",
    " Hello world ", "Hello, y'all! How are you 😁 ?", "it's IT'S It'S they'RE we'Ll I'D you'vE O'Reilly 'tis ' 's 'S 'ſ itʼs it’s",
    "0 1 12 123 1234 12345 123456 1234567 0.5 -3 1e10 0x1F 1,000,000", "٠١٢٣٤٥٦٧٨٩ १२३४ ①②③ ½¾ Ⅷ ²³ 一二三 𝟘𝟙𝟚 ௧௨௩ 〇",
    "e\u0301 é E\u0301le\u0300ve a\u0323\u0307 a\u0307\u0323 \u1e9b\u0323 \u0344 \u212b \u2126", "\u1100\u1161\u11a8 각 \uac00\u11a8",
    "ﬁ ﬂ ﷺ ½ ㎏ ﾊﾝｶｸ ＡＢＣ ℌ ⁵ ™", "नमस्ते क्षत्रिय ज़िंदगी", "สวัสดีครับ น้ำ", "مرحبًا بالعالم لا إله", "שָׁלוֹם עוֹלָם", "Việt Nam đẹp", "İstanbul ıIiİ ΑΣ ΣΑΣ ß ẞ",
    "東京タワー、カタカナ ひらがな。「引用」", "中文字符测试，标点；！？", "한국어 테스트", "Ελληνικά άέήίόύώ", "Русский ЁЖ ёж", "ქართული Ქ", "ᏣᎳᎩ ꭰꭱ", "𐐷𐐏 𝒳𝔘 𠮷野家 𓀀",
    "😀😃 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 1️⃣ ❤️ ✈︎ ☺", "zero\u200bwidth\u200cjoin\u200der\u2060\ufeffbom", "\ufeffstart", "soft\u00adhyphen",
    "ctrl\u0001\u0002\u001b[31m\u007f\u0080\u009f", "nul\u0000inside", "\u0000", "\u001c\u001d\u001e\u001f sep", "unassigned \u0378 \U0001fbfa \U000e0fff \U0003fffd",
    "private \ue000 \U000f0000 noncharacter \ufffe \uffff \U0010ffff", "replacement \ufffd", "a\u0300\u0301\u0302\u0303\u0304b", "\u0301 lone mark", "1\u0301 2\u20e3",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE x_1 _x __init__", "if(a&&b||!c){return a<=b?x:y;}//!@#$%^&*()",
    "    four\n\ttab\n  \t mixed\n        eight", "https://example.org/a?b=c&d=%20#e user@mail.com", "...!!!??? -- --- — – … “q” ‘q’ «q»", "a.b.c. A.B. e.g. 3.14. .5",
    "$x^2 + \\frac{1}{2}$ \\n \\u0041", "```py\nprint('hi')\n```\n\n| a | b |\n|---|---|\n", "▁ ▁a a▁b ▁▁ Ġ Ċ ĠĠ", "<0x0A> <0x41><0xFF> <unk> <s> </s>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "=" * 70 + "\n" + "-" * 33 + " " * 41 + "\n" + "\n" * 9 + "\t" * 7, "abab" * 30, "the" * 25, "東" * 20, "1" * 40,
    "<s>a</s> b<s> c </s>", "<s><s> </s>", " <s>", "<s> ", "x<unk>y <unk> z", "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|> x",
    "<|endoftext", "<|endoftext|", "|><|endoftext|>", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi there!<|eot_id|>",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n", "<think>\nhm </think>\n\n4", "<tool_call> x</tool_call>", "[INST] Hi [/INST] Hello </s>",
    "strip   <L>   me", "strip   <R>   me", " \n\t<LR>\u00a0\u3000 both <LR><LR> x", "word single word, words singleword single-word word.word _word word9 wordé éword (word)",
    "café Café cafe\u0301東 café東 <CAFÉ東>", "<long><longer> <longest> <longe", "Token token TOKEN",
]

ALPHABET = list("aeiou tnshr  ..,'0123\n") + ["the ", " of", "ing", "é", "e\u0301", "東", "京", "का", "\u00a0", "  ", "\t", "😀", "\u200d", "ß", "Д", "ש", "\r\n", "'s",
                                                "'LL", "½", "٣", "_", "{", "</s>", "<|im_end|>", "<|eot_id|>", "▁", "\u0301", "🏽", "\u2028", "x" * 9]


def mixtures(count):
    draw = random.Random(6)
    return ["".join(draw.choice(ALPHABET) for _ in range(draw.randrange(8, 60))) for _ in range(count)]


TEXTS = HARD + mixtures(40)


def corpus():
    passages = [path.read_text() for path in sorted((ROOT / "traces/workloads/passages").glob("*.txt"))]
    return passages + MULTILINGUAL * 3 + [pathlib.Path(__file__).read_text()]


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def keep(name, tokenizer_text, encode, decode):
    """Writes tokenizer.json (when it is one) and ids.json."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    if tokenizer_text is not None:
        (folder / "tokenizer.json").write_text(tokenizer_text + "\n")
    ids = [encode(text) for text in TEXTS]
    decoded = [decode(i) for i in ids]
    dump(folder / "ids.json", {"ids": ids, "decoded": [None if d == t else d for d, t in zip(decoded, TEXTS)]})
    print(name, max(max(i, default=0) for i in ids), "largest id;", sum(d != t for d, t in zip(decoded, TEXTS)), "decoded otherwise")


def make_json():
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    split, byte_level, metaspace = pre_tokenizers.Split, pre_tokenizers.ByteLevel, pre_tokenizers.Metaspace

    def train(pre_tokenizer, alphabet, vocabulary, normalizer=None):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False))
        model = json.loads(tokenizer.to_str())["model"]
        return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]

    def finish(name, tokenizer, specials=(), added=(), bos=None, eos=None):
        tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
        tokenizer.add_tokens(list(added))
        if bos or eos:
            single = ([bos] if bos else []) + ["$A"] + ([eos] if eos else [])
            around = processors.TemplateProcessing(single=" ".join(single), special_tokens=[(t, tokenizer.token_to_id(t)) for t in (bos, eos) if t])
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), around]) if name == "llama3" else around
        text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
        again = Tokenizer.from_str(text)
        keep(name, text, lambda t: again.encode(t).ids, lambda i: again.decode(i, skip_special_tokens=True))

    def on_bytes(name, pre_tokenizer, vocabulary=900, normalizer=None, ignore_merges=False, **more):
        tokens, merges = train(pre_tokenizer, byte_level.alphabet(), vocabulary, normalizer)
        extra = ["ĠĠĠwhole", "東京".encode().decode("latin-1")] if ignore_merges else []
        vocab = {t: i for i, t in enumerate(tokens + [e for e in extra if e not in tokens])}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        finish(name, tokenizer, **more)

    def cut(pattern):
        return pre_tokenizers.Sequence([split(Regex(pattern), "isolated"), byte_level(add_prefix_space=False, use_regex=False)])

    on_bytes("gpt2", byte_level(add_prefix_space=False), specials=SPECIALS["gpt2"])
    on_bytes("gpt2_prefix_space", byte_level(add_prefix_space=True), vocabulary=400, specials=SPECIALS["gpt2"], added=[
        AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True), AddedToken("<LR>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True), AddedToken("<long>"), AddedToken("<longer>"), AddedToken("<longest>"), AddedToken("[INST]"), AddedToken("\n\n")])
    on_bytes("llama3", cut(LLAMA3), ignore_merges=True, specials=SPECIALS["llama3"], bos="<|begin_of_text|>")
    on_bytes("qwen2", cut(QWEN2), normalizer=normalizers.NFC(), specials=SPECIALS["qwen2"],
             added=[AddedToken("<think>"), AddedToken("</think>"), AddedToken("<tool_call>", normalized=False), AddedToken("cafe\u0301東"), AddedToken("Token", single_word=True)])
    on_bytes("smollm2", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]), specials=SPECIALS["smollm2"])
    # No published shape: every way of cutting.
    on_bytes("cuts", pre_tokenizers.Sequence([
        split(Regex(r"[\r\n]+"), "merged_with_previous"), split("-", "merged_with_next"), split(Regex(r"^.| .$"), "isolated"), split(",", "removed"),
        split(Regex(r"\p{Lu}"), "contiguous"), split(Regex(r"\s+|\S+"), "removed", invert=True), pre_tokenizers.Digits(individual_digits=False),
        byte_level(add_prefix_space=True, use_regex=False)]), vocabulary=400,
        normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Replace("aa", "b"), normalizers.NFKC()]), specials=["<s>"], added=["TOKEN", "É東"])

    def on_characters(name, normalizer, pre_tokenizer, decoder, byte_fallback=True, fuse_unk=True, vocabulary=900, **more):
        tokens, merges = train(metaspace(), [], vocabulary)
        known = [c for c in tokens if len(c) > 1 or ord(c) < 0x250 or c == "▁"]
        merges = [m for m in merges if m[0] in known and m[1] in known and m[0] + m[1] in known]
        known = [t for t in known if len(t) == 1 or any(m[0] + m[1] == t for m in merges)]
        merges = [m for m in merges if m[0] in known and m[1] in known]
        tokens = SPECIALS["llama2"] + [f"<0x{b:02X}>" for b in range(256) if byte_fallback] + known
        tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre_tokenizer is not None:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder
        finish(name, tokenizer, specials=SPECIALS["llama2"], bos="<s>", **more)

    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [decoders.Strip(content=" ", left=1)]
    on_characters("llama2", normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, decoders.Sequence(back + strip), added=[AddedToken("[INST]"), AddedToken("<R>", rstrip=True)])
    on_characters("llama2_first", None, metaspace(prepend_scheme="first", split=False), decoders.Sequence(back + strip), eos="</s>", added=[AddedToken("word", single_word=True, normalized=False)])
    on_characters("metaspace", None, metaspace(), decoders.Metaspace(), byte_fallback=False, vocabulary=700)
    on_characters("metaspace_never", None, metaspace(prepend_scheme="never"), decoders.Metaspace(prepend_scheme="never"), byte_fallback=False, fuse_unk=False, vocabulary=500)


def make_sentencepiece():
    import sentencepiece
    from transformers import LlamaTokenizer

    def spell(tokenizer, ids):
        """What the pieces say, without the space put before a text. (The tokenizer's own decode() takes two there.)"""
        pieces, added = tokenizer.sp_model, tokenizer.added_tokens_decoder
        text, begins = b"", tokenizer.legacy or tokenizer.add_prefix_space
        for i in ids:
            if i in added:
                text += b"" if i in tokenizer.all_special_ids else added[i].content.encode()
                begins = begins or (tokenizer.legacy and i in tokenizer.all_special_ids)
                if i not in tokenizer.all_special_ids:
                    begins = False
                continue
            piece = bytes([int(pieces.id_to_piece(i)[3:5], 16)]) if pieces.is_byte(i) else pieces.id_to_piece(i).replace("▁", " ").encode()
            text += piece[1:] if begins and piece.startswith(b" ") else piece
            begins = False
        return text.decode()

    def train(name, config=None, files=(), **options):
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        lines = [line for text in corpus() for line in text.split("\n") if line.strip()]
        with open(folder / "tokenizer.model", "wb") as out:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, minloglevel=2, num_threads=1, **options)
        for file, value in ([("tokenizer_config.json", config)] if config is not None else []) + list(files):
            dump(folder / file, value)
        tokenizer = LlamaTokenizer.from_pretrained(folder)
        keep(name, None, tokenizer.encode, lambda ids: spell(tokenizer, ids))

    llama = dict(model_type="bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                 allow_whitespace_only_pieces=True, character_coverage=0.98, unk_surface=" \u2047 ")
    listed = {str(i): {"content": c, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
              for i, c in ((0, "<unk>"), (1, "<s>"), (2, "</s>"), (900, "<|im_start|>"), (901, "<|im_end|>"))}
    listed["902"] = {"content": "<R>", "lstrip": False, "normalized": False, "rstrip": True, "single_word": False, "special": False}
    listed["903"] = {"content": "<L>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False, "special": False}
    config = {"added_tokens_decoder": listed, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
              "tokenizer_class": "LlamaTokenizer"}
    train("sp_bpe_legacy", {**config, "legacy": True, "add_bos_token": True}, **llama)
    train("sp_bpe", {**config, "legacy": False, "add_bos_token": True, "add_eos_token": True}, **llama)
    train("sp_unigram", vocab_size=800, hard_vocab_limit=False, character_coverage=0.98, user_defined_symbols=["[INST]", "<tool_call>"])  # nmt_nfkc; no other file
    train("sp_unigram_identity", {"add_bos_token": False, "legacy": False, "bos_token": "<s>"}, [
        ("added_tokens.json", {"<|endoftext|>": 900, "[INST]": 901}),
        ("special_tokens_map.json", {"pad_token": "<|endoftext|>", "eos_token": "</s>", "unk_token": {"content": "<unk>"}})], model_type="unigram", vocab_size=900,
        byte_fallback=True, normalization_rule_name="identity", character_coverage=0.98)


if __name__ == "__main__":
    dump(HERE / "texts.json", TEXTS)
    {"json": make_json, "sentencepiece": make_sentencepiece}[sys.argv[1]]()
