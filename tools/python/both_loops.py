#!/usr/bin/env python3
"""Runs both loops on the shipped model and writes analysis/OPEN_AND_CLOSED.md: which number of a replay may be trusted for
what a running model answers.

    tools/python/both_loops.py PATH/TO/kvsim --runs FOLDER [--page FILE] [--count 96] [--threads 2]

Rows of both loops stay in FOLDER, by kind of prompt and set of policies; what is complete there is not run again, so a
run that was stopped goes on, and the page alone takes two minutes. Traces are deleted as soon as they are replayed.
"""
import argparse
import concurrent.futures
import csv
import functools
import io
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "analysis" / "reproductions"))
from order_agreement import tau_b  # noqa: E402

MODEL = ROOT / "traces" / "sample" / "model"
KINDS = ["needle", "needle-multi-key", "needle-multi-value", "variables"]
BUDGETS = ["5%", "10%", "20%", "35%", "50%", "75%"]
CUTS = ["prompt", "question"]
TOKENS = 600

# What the page shows of either loop, and what it calls it.
LOSSES = {"evidence_loss": "evidence loss", "peak_loss": "peak loss", "attention_loss": "attention loss",
          "output_error": "output error"}
MEASURES = {**LOSSES, "evidence_held": "evidence held", "r": "R_avg", "isr": "ISR"}
CLOSED = {"right": "Right answers", "kl": "KL divergence"}
TRUSTED_TAU = 0.5
OWN_BUDGET = {"full", "fastgen"}
WORDS = {"workload", "cut", "budget", "open", "closed", "best"}

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
        """Everything that is missing: a kind of prompt in one loop on every thread."""
        for kind in self.kinds:
            self.run("workload", kind, "--context", TOKENS, "--count", self.count, "--tokenizer", MODEL, "-o", self.items(kind),
                     "--overwrite")
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(loop, kind) for kind in self.kinds for loop in (self.answer, self.replay)]:
                done.result()

    def items(self, kind):
        return self.folder / f"{kind}.jsonl"

    def missing(self, loop, kind):
        return {name: policies for name, (policies, kinds) in SETS.items()
                if kind in kinds and not self.rows(loop, kind, name).exists()}

    def answer(self, kind):
        for name, policies in self.missing("closed", kind).items():
            self.run("evaluate", "--model", MODEL, "--workload", self.items(kind), "-o", self.rows("closed", kind, name),
                     *self.cells(policies))

    def replay(self, kind):
        missing = self.missing("open", kind)
        replayed = {name: [] for name in missing}
        for item in map(json.loads, self.items(kind).read_text().splitlines()) if missing else []:
            trace = self.folder / f"{item['id']}.h5"
            # The rows that read the first right answer, which teacher mode feeds: the query of its last token reads what
            # comes after it. All answers of an item are as long.
            steps = item["answer_tokens"] // len(item["answers"]) - 1
            self.run("capture", "--model", MODEL, "--workload", self.items(kind), "--item", item["id"], "--max-new-tokens", steps,
                     "--output-weights", "--threads", 1, "--quiet", "-o", trace, "--overwrite")
            for name, policies in missing.items():
                lines = self.run("replay", trace, *self.cells(policies)).splitlines(keepends=True)
                replayed[name] += lines if not replayed[name] else lines[1:]
            trace.unlink()
        for name, lines in replayed.items():
            partial = self.rows("open", kind, name).with_suffix(".partial")
            partial.write_text("".join(lines))
            partial.rename(self.rows("open", kind, name))

    @functools.cache
    def agreement(self, kind, table="agreement"):
        """Rows of a table of kvsim agreement, with numbers as numbers and undefined ones as None."""
        text = self.run("agreement", self.rows("open", kind, "all"), self.rows("closed", kind, "all"), "--table", table,
                        "--closed", ",".join(CLOSED), "--format", "csv")
        return [{key: value if key in WORDS else float(value) if value else None for key, value in row.items()}
                for row in csv.DictReader(io.StringIO(text))]

    def means(self, loop, kind, name, key):
        """{(cut, budget): {(policy, params): mean over items}} of those that ran on every item. An item on which no
        policy has the number, such as peak loss of a prompt without peaks, is in no mean."""
        values = {}
        with open(self.rows(loop, kind, name), newline="", errors="replace") as file:
            for row in csv.DictReader(file):
                if row[key] != "" and row["policy"] not in OWN_BUDGET:
                    cell = values.setdefault((row["cut"], row["budget"]), {})
                    cell.setdefault((row["policy"], row["params"]), []).append(float(row[key]))
        return {cell: {policy: statistics.fmean(each) for policy, each in of.items() if len(each) == max(map(len, of.values()))}
                for cell, of in values.items()}

    def full_right(self, kind, cut):
        """Share of the items that the full cache answers."""
        right = {}
        with open(self.rows("closed", kind, "all"), newline="", errors="replace") as file:
            for row in csv.DictReader(file):
                if row["cut"] == cut and row["right_full"] != "":
                    right[row["item"]] = float(row["right_full"])
        return statistics.fmean(right.values())


def two(value):
    """Two decimals; undefined is a dash."""
    return "-" if value is None else f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def percent(share):
    return f"{100 * share:.0f} %"


def table(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


class Page:
    """The page's sections; every number and every verdict in them follows from the rows."""

    def __init__(self, runs):
        self.runs, self.kinds, self.budgets = runs, runs.kinds, runs.budgets
        self.agreement = {(row["workload"], row["cut"], row["budget"], row["open"], row["closed"]): row
                          for kind in runs.kinds for row in runs.agreement(kind)}

    def text(self):
        return "\n".join([self.head(), self.answered(), self.trusted(), self.orders(), self.signs(), self.choices(), self.thresholds(),
                          self.protection(), self.splits(), self.kvcrush(), self.limits()])

    def head(self):
        full = [self.runs.full_right(kind, cut) for kind in self.kinds for cut in CUTS]
        policies = [int(row["policies"]) for row in self.agreement.values() if row["closed"] == "right"]
        reached = f"{percent(min(full))} to {percent(max(full))}" if min(full) < max(full) else percent(min(full))
        return f"""# What the open loop is worth

A replay measures what a policy's cache loses of a recorded run. Does it say which policy a running model answers best with? Both loops
run the same policies on the same prompts here, and [`kvsim agreement`](README.md#do-both-loops-agree) compares their orders.

```console
$ tools/python/both_loops.py build/release/kvsim --runs /tmp/both-loops
```

The command writes this page: numbers, and verdicts by the rules that are stated beside them. It takes some twenty minutes on two cores,
and the rows of both loops stay in the folder.

**Here** (the sample model; {self.runs.count} prompts each of {', '.join(f'`{kind}`' for kind in self.kinds)}, of {TOKENS} tokens; every
eviction and system of `kvsim policy list` that a running model serves, {min(policies)} to {max(policies)} of them by budget). The full cache
answers {reached} of each kind's prompts, so every kind is ranked. Cut `prompt`: policies know the question.
Cut `question`: they do not. Intervals are bootstraps over prompts, 95 %.

![Attention loss against right answers at six budgets](open_and_closed_attention_loss.svg)

![Peak loss against right answers at six budgets](open_and_closed_peak_loss.svg)
"""

    def answered(self):
        rows = []
        for kind in self.kinds:
            right = self.runs.means("closed", kind, "all", "right")
            for cut in CUTS:
                cells = []
                for budget in self.budgets:
                    shares = sorted(right[cut, budget].values())
                    cells.append(f"{percent(statistics.median(shares))} ({percent(shares[0])} to {percent(shares[-1])})")
                rows.append([f"{kind}, {cut}", *cells])
        return "\n".join(["## What is answered\n", "Right answers: the median policy, and in brackets the least and the most of any.\n",
                          table(["kind, cut", *self.budgets], rows)])

    def row(self, kind, cut, budget, measure, closed):
        return self.agreement.get((kind, cut, budget, measure, closed))

    def trusted(self):
        """Whether a measure's order may be taken for that of the answers."""
        parts = ["## Which number may be trusted for what\n",
                 f"To order policies a measure is trusted at a budget where the interval of tau-b lies above {TRUSTED_TAU} in every kind of",
                 "prompt, which is more than three pairs of policies of four in the same order; in some kinds where it does so in those. The rule was",
                 "set after a first look at `needle`; the other kinds had not been seen.\n"]
        tables, findings = [], []
        for closed, what in CLOSED.items():
            for cut in CUTS:
                rows, budgets_of = [], {}
                for measure, label in MEASURES.items():
                    cells = []
                    for budget in self.budgets:
                        lows = [row["tau_low"] for kind in self.kinds if (row := self.row(kind, cut, budget, measure, closed))]
                        held = sum(low is not None and low > TRUSTED_TAU for low in lows)
                        cells.append("yes" if held == len(self.kinds) else "no" if held == 0 else f"in {held}")
                    rows.append([label, *cells])
                    everywhere, somewhere = ([budget for budget, cell in zip(self.budgets, cells) if cell in wanted]
                                             for wanted in (("yes",), [f"in {held}" for held in range(1, len(self.kinds))]))
                    trusted = f"in every kind at {', '.join(everywhere)}" if everywhere else "in every kind at no budget"
                    trusted += f", in some at {', '.join(somewhere)}" if somewhere else ""
                    budgets_of.setdefault(trusted if everywhere or somewhere else "in no kind at any budget", []).append(label)
                findings.append(f"- **{what}, cut `{cut}`**: " + "; ".join(
                    f"{', '.join(labels)} {budgets}" for budgets, labels in budgets_of.items()) + ".")
                tables += [f"{what}, cut `{cut}`:\n", table(["measure of the replay", *self.budgets], rows)]
        return "\n".join([*parts, *findings, "", *tables])

    def orders(self):
        parts = ["## Orders of policies: Kendall's tau-b with right answers\n",
                 "Where nearly every policy answers everything, or nearly none anything, there is hardly an order to agree on: see what is answered,",
                 "above. Of `needle-multi-value` any of the values is right, so one that is held is enough, and what is lost of the others does",
                 "not matter to the answer: no loss of a replay knows that.\n"]
        for cut in CUTS:
            rows = []
            for kind in self.kinds:
                for measure, label in MEASURES.items():
                    cells = []
                    for budget in self.budgets:
                        row = self.row(kind, cut, budget, measure, "right")
                        if row is None or row["tau"] is None:
                            cells.append("-")
                        elif row["tau_low"] is None:
                            cells.append(two(row["tau"]))
                        else:
                            cells.append(f"{two(row['tau'])} ({two(row['tau_low'])} to {two(row['tau_high'])})")
                    rows.append([f"{kind}, {label}", *cells])
            parts += [f"Cut `{cut}`:\n", table(["kind, measure", *self.budgets], rows)]
        parts.append("With the KL divergence of the next token from the full cache's, least to most of any kind:\n")
        for cut in CUTS:
            rows = [[label, *(self.spread(cut, budget, measure, "kl", "tau") for budget in self.budgets)]
                    for measure, label in MEASURES.items()]
            parts += [f"Cut `{cut}`:\n", table(["measure", *self.budgets], rows)]
        return "\n".join(parts)

    def spread(self, cut, budget, measure, closed, key):
        found = [row[key] for kind in self.kinds if (row := self.row(kind, cut, budget, measure, closed)) and row[key] is not None]
        return f"{two(min(found))} to {two(max(found))}" if found else "-"

    def signs(self):
        parts = ["## Pairs of policies whose answers differ distinguishably\n",
                 "Share of them that the measure puts in the same order, least to most of any kind:\n"]
        for cut in CUTS:
            rows = [[label, *(self.spread(cut, budget, measure, "right", "signs") for budget in self.budgets)]
                    for measure, label in MEASURES.items()]
            parts += [f"Cut `{cut}`:\n", table(["measure", *self.budgets], rows)]
        return "\n".join(parts)

    def choices(self):
        parts = ["## Chosen on one half of the prompts, reported on the other\n",
                 "The measure with the highest tau-b, by its mean over budgets, on every other prompt; its tau-b on the remaining prompts, and in",
                 "brackets the highest of any measure there:\n"]
        for closed, what in CLOSED.items():
            rows = []
            for kind in self.kinds:
                found = self.runs.agreement(kind, "choices")
                for cut in CUTS:
                    of_cut = {row["budget"]: row for row in found if row["cut"] == cut and row["closed"] == closed}
                    if of_cut:
                        chosen = next(iter(of_cut.values()))["open"].replace("_", " ")
                        rows.append([f"{kind}, {cut}", chosen, *(
                            f"{two(of_cut[budget]['tau'])} ({two(of_cut[budget]['best_tau'])})" if budget in of_cut else "-"
                            for budget in self.budgets)])
            parts += [f"{what}:\n", table(["kind, cut", "chosen", *self.budgets], rows)]
        return "\n".join(parts)

    def thresholds(self):
        rows = []
        for kind in self.kinds:
            found = self.runs.agreement(kind, "thresholds")
            for cut in CUTS:
                for measure, label in LOSSES.items():
                    cells = [row for row in found if row["cut"] == cut and row["open"] == measure]
                    if not cells:
                        continue

                    def total(key):
                        return f"{sum(row[key] for row in cells):.0f}"
                    rows.append([f"{kind}, {cut}, {label}",
                                 "-" if cells[0]["threshold"] is None else f"{cells[0]['threshold']:.3f}",
                                 f"{cells[0]['chosen_within']:.0f}", f"{total('within_kept')} of {total('within')}",
                                 f"{total('beyond_kept')} of {total('beyond')}"])
        return "\n".join([
            "## Up to which loss answers are kept\n",
            "A policy at a budget keeps its answers when it gives at least 90 % of the full cache's right ones. On every other prompt the largest",
            "loss is sought below which 95 % of them keep theirs; the others are counted on the remaining prompts. A dash: there is no such loss,",
            "as even of the policies with the least loss too many do not keep them.\n",
            table(["kind, cut, loss", "trusted up to", "chosen by", "within it, kept", "beyond it, kept all the same"], rows)])

    def tau_of(self, a, b):
        """Of two {policy: value} over the policies that both have."""
        shared = sorted(a.keys() & b.keys())
        return tau_b([a[each] for each in shared], [b[each] for each in shared]), len(shared)

    def extra_kinds(self, name):
        return [kind for kind in SETS[name][1] if kind in self.kinds]

    def protection(self):
        rows, taus, changes = [], [], []
        for kind in self.extra_kinds("alike"):
            own, alike = (self.runs.means("closed", kind, name, "right") for name in ("all", "alike"))
            loss = self.runs.means("open", kind, "alike", "attention_loss")
            peak = self.runs.means("open", kind, "alike", "peak_loss")
            for cut in CUTS:
                for budget in self.budgets:
                    cell = cut, budget
                    after = {policy: right for (policy, _), right in alike.get(cell, {}).items()}
                    before = {policy: right for (policy, _), right in own.get(cell, {}).items() if policy in after}
                    if len(after) < 2:
                        continue
                    tau, policies = self.tau_of(before, after)
                    shared = before.keys() & after.keys()
                    taus.append(tau)
                    changes += [abs(after[each] - before[each]) for each in shared]
                    rows.append([f"{kind}, {cut}, {budget}", f"{policies}", two(tau),
                                 percent(statistics.fmean(before[each] for each in shared)),
                                 percent(statistics.fmean(after[each] for each in shared)),
                                 f"{percent(min(after.values()))} to {percent(max(after.values()))}",
                                 *(two(self.tau_of({key: -value for key, value in of.get(cell, {}).items()}, alike[cell])[0])
                                   for of in (loss, peak))])
        return "\n".join([
            "## Is it the score or the protection?\n",
            "The control: the same scores, all of them with the same 4 first and 32 newest tokens protected, beside what each paper protects. The",
            "first tau-b is that of the orders by right answers without and with the control: at 1 the protection changes nothing in the order.\n",
            table(["kind, cut, budget", "policies", "tau-b, own and alike", "right, own", "right, alike", "least to most, alike",
                   "tau-b of attention loss, alike", "tau-b of peak loss, alike"], rows),
            *(self.protection_findings([tau for tau in taus if tau is not None], changes) if rows else [])])

    def protection_findings(self, taus, changes):
        kept = sum(tau > TRUSTED_TAU for tau in taus)
        verdict = "the score" if kept == len(taus) else "in part the protection" if kept > len(taus) / 2 else "the protection"
        return [f"- **It is {verdict}**: with protection alike tau-b with the order before is above {TRUSTED_TAU} at {kept} of {len(taus)} places,",
                f"  and {percent(sum(change > 0.1 for change in changes) / len(changes))} of the policies at budgets change their right answers by more than 10 points.\n"]

    def most(self, values, shared):
        """The splits that have the most, by name."""
        most = max(values[each] for each in shared)
        names = sorted(policy.partition("+")[2] or "even" for policy, params in shared if values[policy, params] == most)
        return ", ".join(names) if len(names) <= 3 else f"{len(names)} splits"

    def splits(self):
        rows, verdicts, steps = [], [], []
        for kind in self.extra_kinds("splits"):
            retained, right = self.runs.means("open", kind, "splits", "r"), self.runs.means("closed", kind, "splits", "right")
            for cut in CUTS:
                for budget in self.budgets:
                    r, answers = retained.get((cut, budget), {}), right.get((cut, budget), {})
                    shared = r.keys() & answers.keys()
                    if len(shared) < 3:
                        continue
                    tau, policies = self.tau_of(r, answers)
                    verdicts.append(tau)
                    rows.append([f"{kind}, {cut}, {budget}", f"{policies}", two(tau),
                                 *(f"{percent(min(of[each] for each in shared))} to {percent(max(of[each] for each in shared))}: "
                                   + self.most(of, shared) for of in (r, answers))])
                for policy in sorted({policy for budget in self.budgets for policy in retained.get((cut, budget), {})}):
                    path = [(retained[cut, budget][policy], right[cut, budget][policy]) for budget in self.budgets
                            if policy in retained.get((cut, budget), {}) and policy in right.get((cut, budget), {})]
                    steps += [b[1] >= a[1] for a, b in zip(path, path[1:]) if b[0] > a[0]]
        ordered = [tau for tau in verdicts if tau is not None]
        high = sum(tau > TRUSTED_TAU for tau in ordered)
        verdict = "reproduces" if high == len(ordered) else "does not reproduce" if high <= len(ordered) / 2 else "reproduces in part"
        return "\n".join([
            "## XKV, Figure 5: accuracy against R_avg across allocations\n",
            "The paper's accuracy rises with R_avg, the mean importance retained. XKV's choice of tokens under every split over layers that a prompt",
            "decides by itself, at one budget:\n",
            table(["kind, cut, budget", "splits", "tau-b of R_avg and right answers", "R_avg, most", "right, most"], rows),
            f"- **Over splits at one budget: {verdict}.** tau-b is above {TRUSTED_TAU} at {high} of the {len(ordered)} places that have an",
            f"  order, and lies between {two(min(ordered, default=None))} and {two(max(ordered, default=None))}.",
            f"- **Over budgets at one split: {'reproduces' if sum(steps) >= 0.95 * len(steps) else 'does not reproduce'}.** Where R_avg rises with the budget, right answers do not",
            f"  fall in {sum(steps)} of {len(steps)} steps.\n"])

    def kvcrush(self):
        rows, worse, within, better = [], 0, 0, 0
        for kind in self.extra_kinds("kvcrush"):
            means = self.runs.means("closed", kind, "kvcrush", "right")
            for cut in CUTS:
                full = self.runs.full_right(kind, cut)
                for base in "h2o", "snapkv":
                    for budget in self.budgets:
                        cell = {params: right for (_, params), right in means.get((cut, budget), {}).items()}
                        plain = [right for params, right in cell.items() if params.startswith(base + "(")]
                        shares = [[right for params, right in cell.items()
                                   if params.startswith(f"kvcrush(base={base}(") and f",share={share}," in params] for share in (0.25, 0.5)]
                        if not (plain and all(shares)):
                            continue
                        best = max(each[0] for each in shares)
                        if plain[0] < 0.99 * full:
                            worse += 1
                            within += best >= 0.99 * full
                            better += best > plain[0]
                        rows.append([f"{kind}, {cut}, {base}, {budget}", percent(plain[0]), *(percent(each[0]) for each in shares)])
        verdict = "reproduces" if worse and within == worse else "does not reproduce" if within <= worse / 2 else "reproduces in part"
        return "\n".join([
            "## KVCrush, Tables II and III: within 1 % of the full cache where its base loses more\n",
            table(["kind, cut, base, budget", "right, base", "right, a quarter of representatives", "right, half of representatives"], rows),
            f"- **{verdict.capitalize()}.** At {worse} places the base is more than 1 % below the full cache; at {within} of them the better of the two",
            "  shares of representatives, a choice in its favour, is within 1 % of it, and",
            f"  at {better} it answers more than the base.\n"])

    def limits(self):
        return """## What this page cannot say

- The model is small, of four layers, and retrieves in its last layer alone: what an evicted token changes in one layer hardly reaches a layer that
  matters. Drift through depth, which is what a replay cannot see, is hardly tested, and deeper models may part from their replays sooner.
- Every prompt is of one length and every answer of one or two tokens. Long generation, where drift adds up over steps, is not here.
- Policies that take the prompt token by token are not among those that are served, nor those whose least budget is above the one asked for.
- Prompts of one kind are alike. An interval says how the numbers vary with other prompts of the kind, not with other kinds or models.
"""


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
    asked.page.write_text(Page(runs).text())
    first = "needle-multi-key" if "needle-multi-key" in asked.kinds else asked.kinds[0]
    for measure in "attention_loss", "peak_loss":
        runs.run("plot", "agreement", runs.rows("open", first, "all"), runs.rows("closed", first, "all"), "--metric", measure,
                 "--cut", "question", "-o", asked.page.parent / f"open_and_closed_{measure}.svg", "--overwrite")


if __name__ == "__main__":
    main()
