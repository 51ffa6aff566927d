#!/usr/bin/env python3
"""Do losses order policies as evidence loss does? Kendall's tau-b between the orders of the policies' means, per kind of
task, cut and budget.

    python3 order_agreement.py STUDY/tables/means.csv
"""
import csv
import itertools
import math
import sys


def tau_b(x, y):
    """Kendall's tau with ties; None when either side has nothing but ties."""
    both = x_only = y_only = 0
    score = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        a, b = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
        both += a != 0 and b != 0
        x_only += a != 0 and b == 0
        y_only += a == 0 and b != 0
        score += a * b
    weight = math.sqrt((both + x_only) * (both + y_only))
    return score / weight if weight else None


def agreement(rows, reference="evidence_loss"):
    """{(workload, cut, budget, metric): tau-b with the reference} of rows of `means`."""
    means = {}
    for row in rows:
        if row["role"] == "policy" and row["mean"] != "":
            means.setdefault((row["workload"], row["cut"], row["budget"], row["metric"]), {})[row["params"]] = float(row["mean"])
    found = {}
    for (*group, metric), values in means.items():
        of = means.get((*group, reference), {})
        policies = [params for params in values if params in of]
        if metric != reference and policies:
            found[*group, metric] = tau_b([values[params] for params in policies], [of[params] for params in policies])
    return found


if __name__ == "__main__":
    with open(sys.argv[1], newline="") as file:
        for key, tau in agreement(list(csv.DictReader(file))).items():
            print(*key, "-" if tau is None else f"{tau:.2f}")
