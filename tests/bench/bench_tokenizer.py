#!/usr/bin/env python3
"""Tokenizing speed of kvsim against Hugging Face tokenizers and SentencePiece: the same text, in the same run, one thread.

    python3 tests/bench/bench_tokenizer.py build/tests/bench_tokenizer      (needs tokenizers and sentencepiece)

Texts: 1 MB of the repository's own prose and code, a million letters without a space, and a tenth of that: time must
grow with length, no faster.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizers"


def texts(folder):
    files = sorted(ROOT.glob("**/*.md")) + sorted(ROOT.glob("traces/**/*.cpp")) + sorted(ROOT.glob("traces/workloads/passages/*.txt"))
    prose = ""
    while len(prose) < 1_000_000:
        prose += "".join(file.read_text() for file in files)
    for name, text in (("1 MB of prose and code", prose[:1_000_000].replace("<", "(")), ("100,000 letters", "ab" * 50_000), ("1,000,000 letters", "ab" * 500_000)):
        path = pathlib.Path(folder) / f"{len(text)}-{text[0] == 'a'}.txt"
        path.write_text(text)
        yield name, text, str(path)


def reference(name):
    if name.startswith("sp_"):
        import sentencepiece
        model = sentencepiece.SentencePieceProcessor(model_file=str(GOLDEN / name / "tokenizer.model"))
        return lambda text: model.encode(text)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(GOLDEN / name / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


def best_of_three(encode, text):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        tokens = len(encode(text))
        times.append(time.perf_counter() - start)
    return min(times), tokens


def main():
    with tempfile.TemporaryDirectory() as folder:
        inputs = list(texts(folder))
        print("| tokenizer | text | kvsim | reference | ratio |\n|---|---|---|---|---|")
        for name in ("gpt2", "llama3", "qwen2", "smollm2", "llama2", "sp_bpe_legacy", "sp_unigram_identity"):
            ours = subprocess.run([sys.argv[1], GOLDEN / name, *(path for _, _, path in inputs)], check=True, capture_output=True, text=True)
            encode = reference(name)
            for (title, text, _), line in zip(inputs, ours.stdout.splitlines()):
                seconds, tokens = float(line.split()[0]), int(line.split()[1])
                theirs, expected = best_of_three(encode, text)
                if abs(tokens - expected) > 2:  # BOS and EOS
                    sys.exit(f"{name}: {tokens} tokens, the reference has {expected}")
                size = len(text.encode()) / 1e6
                print(f"| {name} | {title} | {size / seconds:.1f} MB/s | {size / theirs:.1f} MB/s | {theirs / seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
