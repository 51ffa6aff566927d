#!/usr/bin/env python3
"""Attention loss against budget, with bootstrap intervals: plot_budget.py STUDY_FOLDER PICTURE.{png,pdf,svg}"""
import sys

import matplotlib
import pandas

matplotlib.use("Agg")  # draws into files, without a display
from matplotlib import pyplot, ticker

folder, picture = sys.argv[1:]
means = pandas.read_csv(f"{folder}/tables/means.csv", dtype={"budget": str, "cut": str})
cut = means.cut.iloc[0]  # rows of two cuts are never averaged
means = means.query("metric == 'attention_loss' and cut == @cut and workload == 'all' and role != 'own_budget'")
tokens = pandas.read_csv(f"{folder}/results.csv", dtype={"budget": str, "cut": str}).query("scope == 'all' and cut == @cut")
tokens = tokens.groupby("budget").budget_tokens.mean().sort_values()
curves = {policy: rows.set_index("budget").reindex(tokens.index) for policy, rows in means.groupby("policy")}
complete = means.query("role == 'policy'").pivot(index="policy", columns="budget", values="mean").dropna()

pyplot.style.use("tableau-colorblind10")
figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
for policy, marker in zip(complete.mean(axis="columns").nsmallest(6).index, "osD^vX"):
    line, = axes.plot(tokens, curves[policy]["mean"], marker=marker, label=policy)
    axes.fill_between(tokens, curves[policy].low, curves[policy].high, color=line.get_color(), alpha=0.15, linewidth=0)
for policy in curves.keys() & {"optimal"}:
    axes.plot(tokens, curves[policy]["mean"], linestyle="--", color="grey", label="optimal (knows the future)")
axes.set(xlabel="budget", ylabel="attention loss", xscale="log", ylim=(0, None))
axes.set_title(f"The six best of the policies that run at every budget, cut {cut}", loc="left")
axes.set_xticks(tokens, labels=tokens.index, minor=False)
axes.xaxis.set_minor_locator(ticker.NullLocator())
axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
axes.legend(bbox_to_anchor=(1.02, 1), loc="upper left", frameon=False)
figure.savefig(picture, dpi=200)
