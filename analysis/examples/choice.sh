# Is kvsim choose worth it? On SmolLM2, under caps of a tenth and a quarter of the bytes in 16 bits: the chosen setting against every
# eviction by its defaults and every code of the whole cache that fits, on the prompts that confirmed it. Run it in an empty folder with
# kvsim on the PATH; what is there is not made again. Some three hours of one core; the table goes to standard output as CSV.
set -euo pipefail
model=$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")

prompts() {  # NAME KIND OPTIONS...
  [ -e "$1.jsonl" ] || kvsim workload "${@:2}" --context 1000 --count 32 --tokenizer "$model" -o "$1.jsonl"
}

case_of() {  # NAME CUT CAP
  local folder=$1-$2-$3
  [ -e "$folder/tables/confirmed.csv" ] ||
    kvsim choose --model "$model" --workload "$1.jsonl" --cut "$2" --memory "$3" --elem f16 --quiet -o "$folder" $([ -e "$folder" ] && echo --resume) > "$folder.txt"
  [ -e "$folder.csv" ] || {
    python3 - "$folder" "$1.jsonl" <<'END'
import csv, glob, gzip, json, sys
ids = {row["item"] for path in glob.glob(sys.argv[1] + "/tasks/confirm-*/rows.csv.gz") for row in csv.DictReader(gzip.open(path, "rt"))}
with open(sys.argv[1] + ".jsonl", "w") as file:
    file.writelines(line for line in open(sys.argv[2]) if json.loads(line)["id"] in ids)
END
    kvsim evaluate --model "$model" --workload "$folder.jsonl" --cut "$2" --budget "$3" --elem f16 --mode greedy --quiet --format csv -o "$folder.csv" \
      --policy all --policy full+q4_0 --policy 'full+kivi(bits=4)' --policy full+kivi --policy full+rotatekv --policy full+nvfp4
  }
}

prompts keys needle-multi-key --facts 8
prompts passkey passkey
prompts ruler needle --style ruler
for name in keys passkey ruler; do
  for cut in prompt question; do
    for cap in 2250KiB 5625KiB; do case_of "$name" "$cut" "$cap"; done
  done
done
python3 - <<'END'
import csv, glob, math, os, sys
def kept(rows):
    judged = [row for row in rows if row["right_full"] == "1"]
    return sum(row["right"] == "1" for row in judged), len(judged)
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["task", "cut", "cap", "chosen", "kept in the search", "chosen keeps", "of", "best default", "it keeps", "best code of everything that fits", "it keeps"])
for path in sorted(glob.glob("*-*-*KiB.csv")):
    task, cut, cap = path[:-4].split("-")
    folder = path[:-4]
    won = next(row for row in csv.DictReader(open(folder + "/tables/tried.csv")) if not row["left"])
    confirmed = next(csv.DictReader(open(folder + "/tables/confirmed.csv")))
    rows = [row for row in csv.DictReader(open(path)) if not row["skipped"]]
    most = int(cap[:-3]) * 1024
    by = {}
    for row in rows:
        by.setdefault(row["policy"], []).append(row)
    of = max(kept(each)[1] for each in by.values())
    def best(codes):
        # What held more than the cap after the cut is no rival; generated tokens are allowed for.
        fits = {name: each for name, each in by.items() if name.startswith("full") == codes
                and max(float(row["kept_tokens"]) - float(row["budget_tokens"]) for row in each) <= 0.5}
        name = max(fits, key=lambda name: kept(fits[name])[0], default=None)
        return (name, kept(fits[name])[0]) if name else ("", "")
    out.writerow([task, cut, cap, won["setting"], f"{float(won['kept']):.2f}", round(float(confirmed["kept"]) * of), of, *best(False), *best(True)])
END
