#!/usr/bin/env python3
"""Prints what was found (findings.toml beside this file) as Markdown, with the tables of the CSV files that it names.

    findings.py
"""
import csv
import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
FINDINGS = tomllib.loads((FOLDER / "findings.toml").read_text())
FIGURES = {figure["name"]: figure for figure in FINDINGS["figures"]}


def tables_of(path):
    """The tables of a CSV file as Markdown: one, or one for each value of its first column where that is `table`."""
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    several = head[0] == "table"
    tables = {}
    for row in rows:
        tables.setdefault(row[0] if several else "", []).append(row[several:])
    line = lambda cells: f"| {' | '.join(cells)} |\n"
    begin = line(head[several:]) + line("---" for _ in head[several:])
    return "".join((f"\n#### {title}\n" if title else "") + "\n" + begin + "".join(map(line, table)) for title, table in tables.items())


def all_tables(entry):
    return "".join(tables_of(FOLDER / file) for file in entry.get("tables", []))


def of_figure(figure):
    """What one figure of a paper shows here: the verdict, the paper's claim, findings, tables and pictures."""
    paper = f"**The paper** {figure['paper']}\n" if "paper" in figure else ""
    pictures = "".join(f"\n![{shows}]({file})\n" for file, shows in figure.get("pictures", []))
    return f"*{figure['verdict']}*\n\n{paper}**Here** {figure['found']}{all_tables(figure)}{pictures}"


def page():
    papers = "; ".join(f"{name}: {published}" for name, published in FINDINGS["papers"].items())
    parts = ["# Findings on figures of the papers\n", "## Answers of SmolLM2\n",
             "An interval of 24 prompts reaches 5 to either side, one of 48 reaches 7.", tables_of(FOLDER / "smollm2" / "claims.csv")]
    parts += [f"### {answers['title']}\n\n{answers['found']}{all_tables(answers)}" for answers in FINDINGS["answers"]]
    parts += ["## Figures on the shipped model\n\n"
              "Unless a finding says otherwise, of 12 prompts of 1,000 tokens and four kinds of task, with 95 % bootstrap intervals over\n"
              "prompts. The model has four layers and 4 million parameters: nothing that depends on depth or scale shows.\n"]
    parts += [f"### {figure['title']}\n\n{of_figure(figure)}" for figure in FIGURES.values()]
    return "\n".join([*parts, f"Papers: {papers}.\n"])


if __name__ == "__main__":
    print(page(), end="")
