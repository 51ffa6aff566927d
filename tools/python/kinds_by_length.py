#!/usr/bin/env python3
"""Which kinds of prompts a model can do at all: right answers of the full cache, by kind and length.

    tools/python/kinds_by_length.py build/release/kvsim MODEL FOLDER --count 100 --lengths 1000,2000,4000,8000 [--chat]

Each kind and length is a workload and its answers in FOLDER, made by `kvsim workload` and `kvsim evaluate`. Answers that are there
are not made again: a run that was stopped goes on, and so does one with a larger --count. Then the table of all of FOLDER is printed:
right of n, with Wilson's 95 % interval. MODEL is what `--model` of kvsim evaluate takes; --chat puts the prompts
into its chat template. Of each --policy, at --budget, a second table says how many of the prompts that the full cache
answers it answers too ("kept"), with the question known and not.
"""
import argparse
import csv
import math
import pathlib
import re
import subprocess
import sys

CUTS = {"prompt": "question known", "question": "not known"}
# Name of a row, kind and options.
TASKS = {
    "needle": ["needle"],
    "needle, sentences": ["needle", "--style", "sentences"],
    "needle, ruler": ["needle", "--style", "ruler"],
    "needle, ruler, 2 examples": ["needle", "--style", "ruler", "--examples", "2"],
    "two keys": ["needle-multi-key", "--facts", "2"],
    "four keys": ["needle-multi-key"],
    "four keys, ruler": ["needle-multi-key", "--style", "ruler"],
    "eight keys": ["needle-multi-key", "--facts", "8"],
    "any of three values": ["needle-multi-value", "--facts", "3"],
    "three values, ruler": ["needle-multi-value", "--facts", "3", "--style", "ruler"],
    "three queries, ruler": ["needle-multi-query", "--facts", "3"],
    "turns": ["turns"],
    "passkey": ["passkey"],
    "copy": ["copy"],
    "copy, 2 examples": ["copy", "--examples", "2"],
    "variables": ["variables"],
    "variables, 2 examples": ["variables", "--examples", "2"],
    "common words": ["common-words"],
    "common words, 2 examples": ["common-words", "--examples", "2"],
    "frequent words": ["frequent-words"],
    "frequent words, 2 examples": ["frequent-words", "--examples", "2"],
    "passage question": ["passage-question"],
    "passage question, 2 examples": ["passage-question", "--examples", "2"],
}


def run(*arguments):
    done = subprocess.run([str(each) for each in arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode if done.returncode > 0 else 1)  # kvsim has said why


def rows(path):
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def answered(path, policy="full", cut="prompt"):
    """The rows of a policy and cut, in the order of prompts."""
    return [row for row in rows(path) if (row["policy"], row["cut"]) == (policy, cut)]


def answer(given, task, length, stem):
    """Appends answers to FOLDER/stem.csv until there are as many as asked for."""
    prompts, missing, part = (given.folder / f"{stem}{end}" for end in (".jsonl", ".missing.jsonl", ".part"))
    run(given.kvsim, "workload", *TASKS[task], "--context", length, "--count", given.count, "--seed", given.seed,
        "--tokenizer", given.model, *(["--chat"] if given.chat else []), "-o", prompts, "--overwrite")
    lines, answers = prompts.read_text().splitlines(keepends=True), given.folder / f"{stem}.csv"
    for begin in range(len(answered(answers)), len(lines), 10):
        missing.write_text("".join(lines[begin:begin + 10]))
        run(given.kvsim, "evaluate", "--model", given.model, "--workload", missing, "--policy", "full",
            *(f"--policy={policy}" for policy in given.policy), "--budget", given.budget,
            "--cut", ",".join(CUTS) if given.policy else "prompt", "--mode", "greedy", "-o", part, "--format", "csv", "--overwrite", "--quiet")
        head, found = part.read_text().split("\n", 1)
        with open(answers, "a") as file:
            file.write(found if begin else head + "\n" + found)


def wilson(right, n):
    z, share = 1.959964, right / n
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return [abs(100 * (middle + sign * half) / (1 + z * z / n)) for sign in (-1, 1)]  # abs: 0 may come as -0


def files(folder):
    """{(task's slug, form, length): path of its answers}"""
    found = {path: re.fullmatch(r"(.+)-(\d+)-(raw|chat)\.csv", path.name) for path in folder.glob("*.csv")}
    return {(match[1], match[3], int(match[2])): path for path, match in found.items() if match}


def share(right):
    return "{} of {} ({:.0f}\u2013{:.0f} %)".format(sum(right), len(right), *wilson(sum(right), len(right))) if right else ""


def table(folder):
    cells = files(folder)
    lengths = sorted({length for _, _, length in cells})
    print("| task | form | " + " | ".join(f"{length:,}" for length in lengths) + " |")
    print("|---|---|" + "---|" * len(lengths))
    for task in TASKS:
        for form in "raw", "chat":
            row = [cells.get((slug(task), form, length)) for length in lengths]
            if any(row):
                shown = [share([answer["right"] == "1" for answer in answered(path)]) if path else "" for path in row]
                print(f"| {task} | {form} | " + " | ".join(shown) + " |")


def kept(folder, policies):
    """Of the prompts that the full cache answers, those that each policy answers, a column per policy and cut."""
    print("\n| task | form | tokens | " + " | ".join(f"`{policy}`, {CUTS[cut]}" for policy in policies for cut in CUTS) + " |")
    print("|---|---|---|" + "---|" * (len(policies) * len(CUTS)))
    of = files(folder)
    for task, form, length in sorted(of, key=lambda key: (list(map(slug, TASKS)).index(key[0]), key[1:])):
        shown = [share([answer["right"] == "1" for answer in answered(of[task, form, length], policy, cut) if answer["right_full"] == "1"])
                 for policy in policies for cut in CUTS]
        if any(shown):
            print(f"| {task} | {form} | {length:,} | " + " | ".join(shown) + " |")


def slug(task):
    return re.sub(r"[^a-z0-9]+", "-", task)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kvsim", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--lengths", default="1000,2000,4000,8000")
    parser.add_argument("--tasks", default=",".join(map(slug, TASKS)), help="some of: " + ", ".join(map(slug, TASKS)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", default=[], help="also answer through this policy's cache; may be repeated")
    parser.add_argument("--budget", default="25%", help="of --policy")
    parser.add_argument("--chat", action="store_true", help="through the model's chat template")
    given = parser.parse_args()
    unknown = set(given.tasks.split(",")) - set(map(slug, TASKS))
    if unknown:
        parser.error(f"no such task: {', '.join(sorted(unknown))}")
    given.folder.mkdir(parents=True, exist_ok=True)
    for length in map(int, given.lengths.split(",")):
        for task in TASKS:
            stem = f"{slug(task)}-{length}-{'chat' if given.chat else 'raw'}"
            if slug(task) in given.tasks.split(",") and len(answered(given.folder / f"{stem}.csv")) < given.count:
                print(f"{stem}: {given.count} prompts", file=sys.stderr)
                answer(given, task, length, stem)
    table(given.folder)
    if given.policy:
        kept(given.folder, given.policy)


if __name__ == "__main__":
    main()
