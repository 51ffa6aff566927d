#!/usr/bin/env python3
"""With how few bytes does each policy answer like the full cache? For each workload, cut and policy the least share of the
full cache's bytes from which on, at every larger budget of the rows, as well, the share of right answers is at most a
margin below the full cache's; with its 95 % bootstrap interval over prompts.

    python3 least_bytes.py [--margin 0.01] ROWS.csv...    (greedy rows of kvsim evaluate --format csv, policy full among them)
"""
import argparse
import collections
import csv
import random
import statistics


def cells(rows):
    """{(workload, cut): {policy: {budget: {item: (right, full right, share of the full cache's bytes)}}}}"""
    full = {(row["item"], row["cut"]): float(row["held_bytes"]) for row in rows if row["policy"] == "full"}
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(dict)))
    for row in rows:
        if row["policy"] != "full" and row["mode"] == "greedy" and not row["skipped"]:
            place = row["item"], row["cut"]
            found[row["workload"], row["cut"]][row["params"]][float(row["budget_number"])][row["item"]] = (
                float(row["right"]), float(row["right_full"]), float(row["held_bytes"]) / full[place])
    return found


def least(by_budget, items, margin):
    """The mean share of bytes at the least budget from which on answers hold; 1, the full cache, where they do at none."""
    share = 1.0
    for budget in sorted(by_budget, reverse=True):
        of = [by_budget[budget][item] for item in items]
        if statistics.fmean(full - right for right, full, _ in of) > margin + 1e-9:
            break
        share = statistics.fmean(bytes_held for *_, bytes_held in of)
    return share


def interval(by_budget, margin, resamples=2000):
    items = sorted(next(iter(by_budget.values())))
    draw = random.Random(0)
    drawn = sorted(least(by_budget, draw.choices(items, k=len(items)), margin) for _ in range(resamples))
    return least(by_budget, items, margin), drawn[round(0.025 * resamples)], drawn[round(0.975 * resamples) - 1], len(items)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--margin", type=float, default=0.01, help="share of all prompts that may be lost")
    asked = parser.parse_args()
    for path in asked.files:
        with open(path, newline="") as file:
            for (workload, cut), policies in cells(list(csv.DictReader(file))).items():
                for policy, by_budget in policies.items():
                    share, low, high, count = interval(by_budget, asked.margin)
                    print(f"{workload}, {cut}: {policy} {100 * share:.0f} % of the bytes "
                          f"({100 * low:.0f} to {100 * high:.0f}), {count} prompts")


if __name__ == "__main__":
    main()
