#!/usr/bin/env python3
"""analysis/reproductions: the studies run, and the tables that the texts quote are what the studies find."""
import csv
import json
import re
import statistics

import kvsim_command
from kvsim_command import SOURCE, CommandTest

FOLDER = SOURCE / "analysis" / "reproductions"


def quoted_rows(name):
    """(first field, [numbers of each further field]) of every row of the text's first table; percent become shares."""
    table = []
    for line in (FOLDER / f"{name}.md").read_text().splitlines():
        if line.startswith("| "):
            first, *others = [field.strip() for field in line.strip("|").split("|")]
            table.append((first, [[float(number) / (100 if "%" in field else 1)
                                   for number in re.findall(r"\d+(?:\.\d+)?", field)] for field in others]))
        elif table:
            break
    return table


def quoted_table(name):
    return dict(quoted_rows(name))


def mean_by(rows, keys, value):
    groups = {}
    for row in rows:
        if row[value] != "":
            groups.setdefault(tuple(row[key] for key in keys), []).append(float(row[value]))
    return {key: statistics.fmean(values) for key, values in groups.items()}


class Reproductions(CommandTest):
    @classmethod
    def setUpClass(cls):
        """All studies are of the same runs: captured once."""
        super().setUpClass()
        studies = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
        cls.capture = studies[0]["capture"]
        assert all(study["capture"] == cls.capture for study in studies)
        only_traces = {"capture": {**cls.capture, "model": str(SOURCE / "traces" / "sample" / "model")},
                       "policies": [], "analyses": ["retention-size"], "report": False}
        (cls.folder / "runs.json").write_text(json.dumps(only_traces))
        done = cls.kvsim("study", "runs.json", "-o", "runs", "--quiet")
        assert done.returncode == 0, done.stderr

    def tables(self, name):
        """Runs the study on those, without its report."""
        study = json.loads((FOLDER / f"{name}.json").read_text())
        del study["capture"]
        study.update(report=False, traces=["runs/traces/*.h5"])
        (self.folder / f"{name}.json").write_text(json.dumps(study))
        self.ok("study", f"{name}.json", "-o", name, "--quiet")

        def read(table):
            with open(self.folder / name / "tables" / f"{table}.csv", newline="") as file:
                return list(csv.DictReader(file))

        return read

    def close(self, quoted, found, digit):
        """The quoted number is the found one, rounded to `digit`; other machines' last bits may turn the rounding."""
        self.assertAlmostEqual(quoted, found, delta=0.75 * digit)

    def test_every_study_has_its_text(self):
        texts = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
        self.assertEqual({path.stem for path in FOLDER.glob("*.json")}, texts)
        for name in texts:
            self.assertIn(f"kvsim study analysis/reproductions/{name}.json", (FOLDER / f"{name}.md").read_text())

    def test_a2sf_cosine(self):
        means = mean_by(self.tables("a2sf_cosine")("means"), ["metric", "policy"], "mean")
        quoted = quoted_table("a2sf_cosine")
        for policy in "window", "a2sf(alpha=0.5)", "a2sf(alpha=0.1)":
            for column, metric in enumerate(["oracle_cosine", "attention_loss"]):
                self.close(quoted[policy][column][0], means[metric, policy], 1e-3)
        self.assertGreater(means["oracle_cosine", "h2o"], means["oracle_cosine", "a2sf(alpha=0.1)"])

    def test_hashevict_correlation(self):
        rows = self.tables("hashevict_correlation")("hash")
        found = {column: mean_by(rows, ["bits"], column)
                 for column in ("correlation", "correlation_spread", "correlation_noise")}
        quoted = quoted_table("hashevict_correlation")
        for bits in "8", "16", "24", "32", "64":
            for column, key in enumerate(found):
                self.close(quoted[bits][column][0], found[key][bits,], 1e-2)

    def test_hashevict_ranking_loss(self):
        rows = self.tables("hashevict_ranking_loss")("ranking-loss")
        by_layer, over_all = mean_by(rows, ["ranking", "layer"], "alr_share"), mean_by(rows, ["ranking"], "alr_share")
        quoted = {first.split(",")[0]: fields for first, fields in quoted_table("hashevict_ranking_loss").items()}
        for (ranking,), share in over_all.items():
            if ranking.split("(")[0] not in quoted:
                continue
            fields = quoted[ranking.split("(")[0]]
            self.close(fields[0][0], share, 1e-2)
            for layer in range(4):
                self.close(fields[1 + layer][0], by_layer[ranking, str(layer)], 1e-2)

    def test_scissorhands_persistence(self):
        rows = self.tables("scissorhands_persistence")("persistence")
        found = mean_by(rows, ["layer"], "persistence"), mean_by(rows, ["layer"], "chance")
        quoted = [fields for _, fields in quoted_rows("scissorhands_persistence")[2:4]]
        for fields, values in zip(quoted, found, strict=True):
            for layer in range(4):
                self.close(fields[layer][0], values[str(layer),], 1e-2)

    def test_xkv_importance(self):
        sums = {}
        for row in self.tables("xkv_importance")("importance"):
            sums.setdefault((row["trace"], row["layer"]), 0.0)
            sums[row["trace"], row["layer"]] += float(row["share"])
        for total in sums.values():
            self.assertAlmostEqual(total, 1, places=9)
        self.ok("analyze", "importance", *sorted(map(str, (self.folder / "runs" / "traces").glob("*.h5"))),
                "--bins", "0", "--format", "csv", "-o", "w.csv", "--quiet")
        shares = {}
        with open(self.folder / "w.csv", newline="") as file:
            for row in csv.DictReader(file):
                shares.setdefault((row["layer"], row["trace"]), []).append(float(row["share"]))
        quoted = quoted_table("xkv_importance")
        for layer in "0", "1", "2", "3":
            of_layer = [w for (this, _), w in shares.items() if this == layer]
            self.close(quoted[layer][0][0], statistics.fmean(sum(w[:7]) for w in of_layer), 1e-2)
            self.close(quoted[layer][1][0], statistics.fmean(sum(w[-31:]) for w in of_layer), 1e-2)

    def test_xkv_retention(self):
        tables = self.tables("xkv_retention")
        sizes = mean_by(tables("retention-size"), ["rule", "target", "layer"], "share")
        quoted = quoted_table("xkv_retention")
        for layer in "0", "1", "2", "3":
            digit = 1e-3 if layer == "2" else 1e-2
            self.close(quoted[layer][2][0], sizes["retention", "0.5", layer], digit)
            self.close(quoted[layer][3][0], sizes["retention", "0.9", layer], 1e-2)

    def test_xkv_allocation(self):
        rows = [row for row in self.tables("xkv_allocation")("allocation-consistency")]
        quoted = quoted_table("xkv_allocation")
        for column, policy in enumerate(["pyramidkv", "cake.layers", "xkv"]):
            of_policy = [row for row in rows if row["policy"] == policy]
            for row in of_policy:
                self.close(quoted[row["layer"]][column][0], float(row["share"]), 1e-2)
        self.close(quoted["Kendall's W"][2][0], float(of_policy[0]["concordance"]), 1e-2)


if __name__ == "__main__":
    kvsim_command.main()
