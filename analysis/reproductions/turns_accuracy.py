#!/usr/bin/env python3
"""Are later questions about a context answered worse than the first? Right answers by turn, cut, budget and policy, and
the share of right first answers less that of later ones, with a 95 % bootstrap interval over conversations.

    python3 turns_accuracy.py ROWS.csv     (greedy rows of kvsim evaluate --format csv, kind conversation)
"""
import csv
import random
import statistics
import sys


def conversations(rows):
    """{(cut, budget, params): [[whether the answer of each turn is right] of each conversation]}. The rows of a cell come
    in the order of items, and the first question of each conversation is turn 0."""
    found = {}
    for row in rows:
        if row["mode"] != "greedy":
            continue
        talks = found.setdefault((row["cut"], row["budget"], row["params"]), [])
        if row["turn"] == "0":
            talks.append([])
        if row["turn"] != str(len(talks[-1])):
            raise ValueError(f"{row['item']}: turn {row['turn']} does not follow turn {len(talks[-1]) - 1}")
        talks[-1].append(int(row["right"]))
    return found


def by_turn(talks):
    """Right answers to the first question, the second, ..."""
    return [sum(turn) for turn in zip(*talks, strict=True)]


def first_less_later(talks, resamples=2000):
    """Mean over conversations of the first answer less the mean of the later ones, and its percentile interval."""
    differences = [first - statistics.fmean(later) for first, *later in talks]
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(differences, k=len(differences))) for _ in range(resamples))
    return statistics.fmean(differences), means[round(0.025 * resamples)], means[round(0.975 * resamples) - 1]


if __name__ == "__main__":
    with open(sys.argv[1], newline="") as file:
        for cell, talks in conversations(csv.DictReader(file)).items():
            mean, low, high = first_less_later(talks)
            print(*cell, *by_turn(talks), f"of {len(talks)}; first less later {mean:.2f} ({low:.2f} to {high:.2f})")
