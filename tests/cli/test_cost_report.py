#!/usr/bin/env python3
"""Tests that every number in sim/cost/examples/llama-3-8b-a100.md is that of kvsim cost."""
import csv
import io
import re

import kvsim_command
from kvsim_command import SOURCE, CommandTest

FOLDER = SOURCE / "sim" / "cost" / "examples"
DOCUMENT = FOLDER / "llama-3-8b-a100.md"
GiB = 2**30
POLICIES = ["full", "snapkv", "xkv", "kvcrush", "hashevict"]
PROMPTS = {"8K": 8192, "32K": 32768, "128K": 131072}
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def admitted_one_by_one(row):
    """Number of sequences that fit while one of them is in its prefill and the others are idle."""
    spare = row["machine_bytes"] - row["prefill_bytes"]
    return 1 + int(spare // row["cache_bytes"])


def table_row(row):
    """The row of the document's first table for a point."""
    return [row["cache_bytes"] / GiB, row["peak_bytes"] / GiB, row["ttft_seconds"], 1e3 * row["tpot_seconds"],
            row["tokens_per_second"], row["largest_batch"], admitted_one_by_one(row)]


def claims(plain, chunked, written, snapkv_based):
    """(sentence with {} for numbers, the numbers) for every claim of the text."""
    full = {name: plain["full", prompt] for name, prompt in PROMPTS.items()}
    short, middle, long = ({policy: plain[policy, prompt] for policy in POLICIES} for prompt in PROMPTS.values())

    def percent(part, whole):
        return 100 * part / whole

    def ratio(name, key="tpot_seconds"):
        return full[name][key] / plain["snapkv", PROMPTS[name]][key]

    saved = percent(short["full"]["tpot_seconds"] - short["snapkv"]["tpot_seconds"], short["full"]["tpot_seconds"])
    yield ("a decode step takes {} ms, of which the matrices take {} ms",
           [1e3 * full["8K"]["tpot_seconds"], 1e3 * full["8K"]["step_linear_seconds"]])
    yield "attention {} ms", [1e3 * full["8K"]["step_attention_seconds"]]
    yield "at most {} % of the step", [saved]
    yield ("attention is {} ms of {} ms at 128K",
           [1e3 * full["128K"]["step_attention_seconds"], 1e3 * full["128K"]["tpot_seconds"]])
    yield "{} times as fast at 32K and {} times at 128K", [ratio("32K"), ratio("128K")]
    yield ("matrices are {} % of the time to the first token at 8K, attention {} % at 128K",
           [percent(full["8K"]["prefill_linear_seconds"], full["8K"]["ttft_seconds"]),
            percent(full["128K"]["prefill_attention_seconds"], full["128K"]["ttft_seconds"])])
    yield ("the cache rests at {} GiB instead of {} GiB",
           [long["snapkv"]["cache_bytes"] / GiB, long["full"]["cache_bytes"] / GiB])
    yield ("peak only falls from {} GiB to {} GiB",
           [long["full"]["peak_bytes"] / GiB, long["snapkv"]["peak_bytes"] / GiB])
    yield ("activations of a pass over 131,072 tokens, {} GiB",
           [long["snapkv"]["prefill_activation_bytes"] / GiB])
    yield ("vote buffer of {} GiB", [long["snapkv"]["prefill_scratch_bytes"] / GiB])
    in_chunks = {policy: chunked[policy, 131072] for policy in POLICIES}
    yield ("activations shrink to {} GiB", [in_chunks["full"]["prefill_activation_bytes"] / GiB])
    yield ("peaks at {} GiB, above the full cache's {} GiB",
           [in_chunks["snapkv"]["peak_bytes"] / GiB, in_chunks["full"]["peak_bytes"] / GiB])
    yield "hashevict at {} GiB", [in_chunks["hashevict"]["peak_bytes"] / GiB]
    yield ("adds {} s, {} s and {} s",
           [plain["kvcrush", prompt]["prefill_policy_seconds"] for prompt in PROMPTS.values()])
    yield ("needs {} GiB of activations at 32K and {} GiB at 128K",
           [written["kvcrush", prompt]["prefill_activation_bytes"] / GiB for prompt in (32768, 131072)])
    yield "adds {} ms to every step", [1e3 * long["kvcrush"]["step_policy_seconds"]]
    yield ("`kvcrush(base=snapkv)` costs {} s at 128K",
           [snapkv_based["kvcrush", 131072]["prefill_policy_seconds"]])
    yield ("hashevict spends {} s at 8K and {} s at 128K",
           [plain["hashevict", prompt]["prefill_policy_seconds"] for prompt in (8192, 131072)])
    yield ("{} s for the 6,144 tokens of an 8K prompt", [6144 * 32 * 5e-6])
    yield ("attention of the 128K prefill falls from {} s to {} s",
           [long["full"]["prefill_attention_seconds"], long["hashevict"]["prefill_attention_seconds"]])
    yield ("first token comes after {} s instead of {} s",
           [long["hashevict"]["ttft_seconds"], long["full"]["ttft_seconds"]])
    yield "Its {} ms per step", [1e3 * long["hashevict"]["step_policy_seconds"]]
    yield ("adds {} % to the prefill at 32K",
           [percent(middle["xkv"]["prefill_policy_seconds"],
                    middle["xkv"]["ttft_seconds"] - middle["xkv"]["prefill_policy_seconds"])])
    yield ("largest batch at 32K is {} for the full cache and {} for snapkv",
           [middle["full"]["largest_batch"], middle["snapkv"]["largest_batch"]])
    yield "only from {} to {} at 128K", [long["full"]["largest_batch"], long["snapkv"]["largest_batch"]]
    yield ("{} sequences of 32K fit under snapkv, {} under the full cache",
           [admitted_one_by_one(middle["snapkv"]), admitted_one_by_one(middle["full"])])
    # Linear work grows with the prompt, attention with its square.
    yield ("near {}K tokens",
           [128 * full["128K"]["prefill_linear_seconds"] / full["128K"]["prefill_attention_seconds"]])


class CostReport(CommandTest):
    def rows(self, *more, policies=POLICIES):
        text = self.ok("cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--generate", 512, "--budget", "2K",
                       *(f"--policy={policy}" for policy in policies), "--sweep", "prompt-tokens=8K,32K,128K", "--format", "csv",
                       "--quiet", *more)
        read = [{key: float(value) if re.fullmatch(r"[\d.e+-]+", value) else value for key, value in row.items()}
                for row in csv.DictReader(io.StringIO(text))]
        return {(row["policy"], int(row["prompt"])): row for row in read}

    def setUp(self):
        self.plain = self.rows("--rows", "recomputed")
        self.text = DOCUMENT.read_text()

    def close(self, quoted, found, sentence):
        digits = len(quoted.partition(".")[2])
        # Half of the last digit shown, and a little more, because the last bits of another machine may change the
        # rounding.
        self.assertLessEqual(abs(float(quoted.replace(",", "")) - found), 0.6 * 10**-digits, (sentence, quoted, found))

    def test_the_table(self):
        shown = {}
        prompt = None
        for line in self.text.splitlines():
            fields = [field.strip() for field in line.strip("|").split("|")]
            if line.startswith("| ") and fields[1] in POLICIES:
                prompt = fields[0] or prompt
                shown[fields[1], PROMPTS[prompt]] = fields[2:]
        self.assertEqual(set(shown), set(self.plain))
        for point, fields in shown.items():
            expected = table_row(self.plain[point])
            self.assertEqual(len(fields), len(expected))
            for quoted, found in zip(fields, expected):
                self.close(quoted, found, point)

    def test_the_sentences(self):
        text = " ".join(self.text.split())
        said = claims(self.plain, self.rows("--rows", "recomputed", "--chunk", "2K"), self.rows("--rows", "written"),
                      self.rows("--rows", "recomputed", policies=["kvcrush(base=snapkv)"]))
        for sentence, numbers in said:
            with self.subTest(sentence=sentence):
                pattern = NUMBER.join(re.escape(part) for part in sentence.split("{}"))
                found = re.search(pattern, text)
                self.assertTrue(found, "is not in the text")
                self.assertEqual(len(found.groups()), len(numbers))
                for quoted, number in zip(found.groups(), numbers):
                    self.close(quoted, number, sentence)

    def test_every_figure_is_there_in_both_themes(self):
        names = re.findall(r'src="([\w-]+)\.svg"', self.text)
        self.assertEqual(sorted(names), ["cost-batch", "cost-context", "cost-memory", "cost-prefill", "cost-time"])
        for name in names:
            self.assertIn(f"kvsim plot {name} ", self.text)
            for theme in "", ".dark":
                self.assertIn("</svg>", (FOLDER / f"{name}{theme}.svg").read_text())


if __name__ == "__main__":
    kvsim_command.main()
