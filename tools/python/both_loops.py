#!/usr/bin/env python3
"""Runs both loops on the shipped model and writes analysis/OPEN_AND_CLOSED.md: which number of a replay may be trusted for
what a running model answers.

    tools/python/both_loops.py PATH/TO/kvsim --runs FOLDER [--page FILE] [--count 96] [--threads 2]

Rows of both loops stay in FOLDER, by kind of prompt and set of policies; what is complete there is not run again, so a
run that was stopped goes on, and the page alone takes seconds. Traces are deleted as soon as they are replayed.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / "traces" / "sample" / "model"
KINDS = ["needle", "needle-multi-key", "needle-multi-value", "variables"]
BUDGETS = ["5%", "10%", "20%", "35%", "50%", "75%"]
CUTS = ["prompt", "question"]
TOKENS = 600

# By set: the policies, and the kinds of prompt that they are run on.
ONE_SET = "snapkv(window=8,pool=avg:7,unit=layer)"
SETS = {
    # Every eviction and system, as its paper has it. What a running model does not serve is skipped by name.
    "all": (["all"], KINDS),
    # Every policy that can protect a number of first and newest tokens, all with the same ones.
    "alike": (["random(sinks=4,window=32)", "l2_norm(sinks=4,window=32)", "h2o(recent=0,sinks=4,window=32)",
               "tova(sinks=4,window=32)", "snapkv(sinks=4,window=32)", "cake(sinks=4,window=32)",
               "ems_like(sinks=4,window=32)", "keydiff(sinks=4,window=32)", "a2sf(recent=0,sinks=4,window=32)",
               "keyformer(recent=0,sinks=4,window=32)", "roco(sinks=4,window=32)", "nacl(sinks=4,window=32)",
               "vatp(base=h2o(recent=0,window=32),sinks=4)", "kvcrush(base=h2o(recent=0,sinks=4,window=32))",
               "critical_kv(base=snapkv(sinks=4,window=32))"], ["needle-multi-key", "variables"]),
    # XKV's choice of tokens under every split over layers or heads that a prompt decides by itself.
    "splits": ([ONE_SET] + [f"{ONE_SET}+{split}" for split in
                            ("pyramid", "xkv", "cake_layers", "pyramidinfer", "zipvl", "best_split", "exempt")],
               ["needle-multi-key", "variables"]),
    # Representatives over two bases, as KVCrush's tables have them.
    "kvcrush": (["h2o", "snapkv"] + [f"kvcrush(base={base},share={share})" for base in ("h2o", "snapkv")
                                     for share in (0.25, 0.5)], ["needle-multi-key", "variables"]),
}


class Runs:
    """Rows of both loops, made when they are first asked for."""

    def __init__(self, kvsim, folder, count, kinds, budgets, threads):
        self.kvsim, self.folder, self.count, self.kinds, self.budgets = kvsim, folder, count, kinds, budgets
        self.threads = threads
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments):
        done = subprocess.run([self.kvsim, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"kvsim {' '.join(map(str, arguments))}\n{done.stderr}")
        return done.stdout

    def cells(self, policies):
        return [*(word for policy in policies for word in ("--policy", policy)), "--budget", ",".join(self.budgets),
                "--cut", ",".join(CUTS), "--format", "csv", "--threads", 1, "--quiet"]

    def rows(self, loop, kind, name):
        return self.folder / f"{loop}-{kind}-{name}.csv"

    def make(self):
        """Everything that is missing: a kind of prompt on every thread."""
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(self.make_kind, self.kinds):
                pass

    def make_kind(self, kind):
        items = self.folder / f"{kind}.jsonl"
        self.run("workload", kind, "--context", TOKENS, "--count", self.count, "--tokenizer", MODEL, "-o", items, "--overwrite")
        sets = {name: policies for name, (policies, kinds) in SETS.items() if kind in kinds}
        for name, policies in sets.items():
            answers = self.rows("closed", kind, name)
            if not answers.exists():
                self.run("evaluate", "--model", MODEL, "--workload", items, "-o", answers, *self.cells(policies))
        missing = {name: policies for name, policies in sets.items() if not self.rows("open", kind, name).exists()}
        replayed = {name: [] for name in missing}
        for item in map(json.loads, items.read_text().splitlines()) if missing else []:
            trace = self.folder / f"{item['id']}.h5"
            # The rows that read the answer: of its tokens the last one's own query reads what comes after it.
            self.run("capture", "--model", MODEL, "--workload", items, "--item", item["id"], "--max-new-tokens",
                     item["answer_tokens"] - 1, "--output-weights", "--threads", 1, "--quiet", "-o", trace, "--overwrite")
            for name, policies in missing.items():
                lines = self.run("replay", trace, *self.cells(policies)).splitlines(keepends=True)
                replayed[name] += lines if not replayed[name] else lines[1:]
            trace.unlink()
        for name, lines in replayed.items():
            partial = self.rows("open", kind, name).with_suffix(".partial")
            partial.write_text("".join(lines))
            partial.rename(self.rows("open", kind, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvsim")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="folder of the rows of both loops")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "analysis" / "OPEN_AND_CLOSED.md")
    parser.add_argument("--count", type=int, default=96, help="prompts of every kind")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS)
    parser.add_argument("--budgets", type=lambda text: text.split(","), default=BUDGETS)
    parser.add_argument("--threads", type=int, default=2, help="kinds that are run at a time")
    asked = parser.parse_args()
    runs = Runs(asked.kvsim, asked.runs, asked.count, asked.kinds, asked.budgets, asked.threads)
    runs.make()


if __name__ == "__main__":
    main()
