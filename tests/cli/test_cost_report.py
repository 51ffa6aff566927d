#!/usr/bin/env python3
"""Tests that every number of the example in sim/cost/README.md is that of kvsim cost."""
import csv
import io
import re

import kvsim_command
from kvsim_command import SOURCE, CommandTest

EXAMPLE = (SOURCE / "sim" / "cost" / "README.md").read_text().split("\n## An example\n")[1].split("\n## ")[0]
GiB = 2**30
POLICIES = ["full", "snapkv", "kvcrush", "hashevict"]
PROMPTS = {"8K": 8192, "32K": 32768, "128K": 131072}
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def admitted_one_by_one(row):
    """Number of sequences that fit while one of them is in its prefill and the others are idle."""
    spare = row["machine_bytes"] - row["prefill_bytes"]
    return 1 + int(spare // row["cache_bytes"])


def table_row(row):
    """The row of the page's table for a point."""
    return [row["cache_bytes"] / GiB, row["peak_bytes"] / GiB, row["ttft_seconds"], 1e3 * row["tpot_seconds"], row["largest_batch"],
            admitted_one_by_one(row)]


def claims(plain, written):
    """(sentence with {} for numbers, the numbers) for every claim of the text."""
    full, short = (plain[policy, 8192] for policy in ("full", "snapkv"))
    yield "the weights take {} of {} ms", [1e3 * full["step_linear_seconds"], 1e3 * full["tpot_seconds"]]
    yield "no eviction saves more than {} % of a step", [100 * (full["tpot_seconds"] - short["tpot_seconds"]) / full["tpot_seconds"]]
    long = plain["snapkv", 131072]
    yield "`snapkv` peaks at {} GiB and rests at {}", [long["peak_bytes"] / GiB, long["cache_bytes"] / GiB]
    yield ("{} s more at 128K, or {} GiB if rows are written",
           [plain["kvcrush", 131072]["prefill_policy_seconds"], written["kvcrush", 131072]["prefill_activation_bytes"] / GiB])
    yield "{} s at 128K, which attention's smaller work repays", [plain["hashevict", 131072]["prefill_policy_seconds"]]


class CostReport(CommandTest):
    def rows(self, *more):
        text = self.ok("cost", "estimate", "--model", "llama-3-8b", "--machine", "a100-80-sxm", "--generate", 512, "--budget", "2K",
                       *(f"--policy={policy}" for policy in POLICIES), "--sweep", "prompt-tokens=8K,32K,128K", "--format", "csv",
                       "--quiet", *more)
        read = [{key: float(value) if re.fullmatch(r"[\d.e+-]+", value) else value for key, value in row.items()}
                for row in csv.DictReader(io.StringIO(text))]
        return {(row["policy"], int(row["prompt"])): row for row in read}

    def setUp(self):
        self.plain = self.rows("--rows", "recomputed")

    def close(self, quoted, found, sentence):
        digits = len(quoted.partition(".")[2])
        # Half of the last digit shown, and a little more, because the last bits of another machine may change the
        # rounding.
        self.assertLessEqual(abs(float(quoted.replace(",", "")) - found), 0.6 * 10**-digits, (sentence, quoted, found))

    def test_the_table(self):
        shown = {}
        prompt = None
        for line in EXAMPLE.splitlines():
            fields = [field.strip() for field in line.strip("|").split("|")]
            if line.startswith("| ") and fields[1] in POLICIES:
                prompt = fields[0] or prompt
                shown[fields[1], PROMPTS[prompt]] = fields[2:]
        self.assertEqual(set(shown), {(policy, tokens) for policy, tokens in self.plain if tokens == 131072 or
                                      (tokens == 8192 and policy in ("full", "snapkv"))})
        for point, fields in shown.items():
            expected = table_row(self.plain[point])
            self.assertEqual(len(fields), len(expected))
            for quoted, found in zip(fields, expected):
                self.close(quoted, found, point)

    def test_the_sentences(self):
        text = " ".join(EXAMPLE.split())
        long = self.plain["full", 131072]
        self.assertAlmostEqual(long["step_attention_seconds"] / long["tpot_seconds"], 0.5, places=1)
        for sentence, numbers in claims(self.plain, self.rows("--rows", "written")):
            with self.subTest(sentence=sentence):
                pattern = NUMBER.join(re.escape(part) for part in sentence.split("{}"))
                found = re.search(pattern, text)
                self.assertTrue(found, "is not in the text")
                self.assertEqual(len(found.groups()), len(numbers))
                for quoted, number in zip(found.groups(), numbers):
                    self.close(quoted, number, sentence)


if __name__ == "__main__":
    kvsim_command.main()
