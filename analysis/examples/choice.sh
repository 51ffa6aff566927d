# Is kvsim choose worth it? On SmolLM2, under caps of a twentieth, a tenth and a quarter of the bytes in 16 bits: the chosen setting against every
# eviction by its defaults, KVzip and every code of the whole cache that fits, and against the best of settings drawn at random, which
# answer as many prompts in all; on the prompts that confirmed it. Run it in an empty folder with kvsim on the PATH; what is there is not
# made again. Some nine hours of one core; the table goes to standard output as CSV. NAMES: some of the tasks (keys ruler passkey needle
# values variables). TOKENS: their length. MODEL and CAPS: another model, and its caps in bytes, as in MODEL=traces/sample/model
# CAPS="200KiB 400KiB 800KiB". In choice.csv passkey and needle are of TOKENS=500 CAPS="562KiB 1125KiB 2812KiB".
set -euo pipefail
model=${MODEL:-$("$(dirname "${BASH_SOURCE[0]}")/../../tools/model.sh")}
read -ra caps <<<"${CAPS:-1125KiB 2250KiB 5625KiB}"

prompts() {  # NAME KIND OPTIONS...
  [ -e "$1.jsonl" ] || kvsim workload "${@:2}" --context "${TOKENS:-1000}" --count 32 --tokenizer "$model" -o "$1.jsonl"
}

choose() {  # NAME CUT CAP
  local folder=$1-$2-$3
  [ -e "$folder/tables/confirmed.csv" ] ||
    kvsim choose --model "$model" --workload "$1.jsonl" --cut "$2" --memory "$3" --elem f16 --quiet -o "$folder" $([ -e "$folder" ] && echo --resume) > "$folder.txt"
}

defaults() {  # NAME CUT: at all caps, on the prompts that confirmed
  local name=$1-$2
  [ -e "$name.csv" ] || {
    python3 - "$1" "$2" "${caps[@]}" <<'END'
import csv, glob, gzip, json, sys
task, cut, *caps = sys.argv[1:]
ids = [{row["item"] for path in glob.glob(f"{task}-{cut}-{cap}/tasks/confirm-*/rows.csv.gz") for row in csv.DictReader(gzip.open(path, "rt"))}
       for cap in caps]
assert all(each == ids[0] for each in ids), "each cap was confirmed by other prompts"
with open(f"{task}-{cut}.jsonl", "w") as file:
    file.writelines(line for line in open(f"{task}.jsonl") if json.loads(line)["id"] in ids[0])
END
    kvsim evaluate --model "$model" --workload "$name.jsonl" --cut "$2" "${caps[@]/#/--budget=}" --elem f16 --mode greedy --quiet --format csv -o "$name.csv" \
      --policy all --policy sirllm --policy kvzip+one_threshold --policy full+q4_0 --policy 'full+kivi(bits=4)' --policy full+kivi --policy full+rotatekv --policy full+nvfp4
  }
}

guess() {  # NAME CUT CAP: the best of settings that fit, drawn at random, on the prompts of the search; then on those that confirmed
  local name=$1-$2-$3
  [ -e "$name-guess.csv" ] && return
  local asked=()
  while IFS= read -r setting; do asked+=(--policy "$setting"); done < <(python3 - "$1" "$2" "$name" <<'END'
import csv, json, random, sys
task, cut, name = sys.argv[1:]
tried = [row for row in csv.DictReader(open(f"{name}/tables/tried.csv")) if row["left"] != "price"]
confirm = {json.loads(line)["id"] for line in open(f"{task}-{cut}.jsonl")}
search = [line for line in open(f"{task}.jsonl") if json.loads(line)["id"] not in confirm]
open(f"{name}-search.jsonl", "w").writelines(search)
spent = sum(int(row["prompts"]) for row in tried)
print(*random.Random(1).sample([row["setting"] for row in tried], max(1, spent // len(search))), sep="\n")
END
  )
  local evaluate=(kvsim evaluate --model "$model" --cut "$2" --budget "$3" --elem f16 --quiet --format csv --overwrite)
  "${evaluate[@]}" --workload "$name-search.jsonl" "${asked[@]}" -o "$name-guesses.csv"
  local best
  best=$(python3 - "$name-guesses.csv" <<'END'
import csv, sys
found, large = {}, set()
for row in csv.DictReader(open(sys.argv[1])):
    if row["skipped"] or float(row["kept_tokens"]) > float(row["budget_tokens"]) + 0.5:
        large.add(row["params"])  # or does not run
        continue
    of = found.setdefault(row["params"], [0, 0])
    of[row["mode"] == "teacher"] += float(row["kl"]) if row["mode"] == "teacher" else row["right_full"] == row["right"] == "1"
print(max(found.keys() - large, key=lambda params: (found[params][0], -found[params][1])))
END
  )
  "${evaluate[@]}" --workload "$1-$2.jsonl" --policy "$best" -o unfinished.csv
  mv unfinished.csv "$name-guess.csv"
}

prompts keys needle-multi-key --facts 8
prompts ruler needle --style ruler
prompts passkey passkey
prompts needle needle
prompts values needle-multi-value --facts 3
prompts variables variables
for name in ${NAMES:-keys ruler passkey needle}; do
  for cut in prompt question; do
    for cap in "${caps[@]}"; do choose "$name" "$cut" "$cap"; done
    defaults "$name" "$cut"
    for cap in "${caps[@]}"; do guess "$name" "$cut" "$cap"; done
  done
done
PYTHONPATH=$(dirname "${BASH_SOURCE[0]}")/../../tools/python python3 - "${caps[@]}" <<'END'
import csv, glob, os, sys
from kinds_by_length import wilson
def kept(rows):
    judged = [row for row in rows if row["right_full"] == "1"]
    return sum(row["right"] == "1" for row in judged), len(judged)
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["task", "tokens", "cut", "cap", "chosen", "kept in the search", "chosen keeps", "of", "interval (95 %)", "best default", "default keeps", "best code of everything that fits",
              "code keeps", "best of random settings", "random keeps"])
for path in sorted(glob.glob("*-prompt.csv") + glob.glob("*-question.csv")):
    name = path[:-4]
    for cap in sys.argv[1:]:
        won = next(row for row in csv.DictReader(open(f"{name}-{cap}/tables/tried.csv")) if not row["left"])
        confirmed = next(csv.DictReader(open(f"{name}-{cap}/tables/confirmed.csv")))
        by = {}
        for row in csv.DictReader(open(path)):
            if not row["skipped"] and row["budget"] == cap:
                by.setdefault((row["policy"], row["params"]), []).append(row)
        of = max(kept(each)[1] for each in by.values())
        def best(codes):
            # What held more than the cap after the cut is no rival; generated tokens are allowed for.
            fits = {setting: each for setting, each in by.items() if setting[0].startswith("full") == codes
                    and max(float(row["kept_tokens"]) - float(row["budget_tokens"]) for row in each) <= 0.5}
            setting = max(fits, key=lambda setting: kept(fits[setting])[0], default=None)
            return (setting[0], kept(fits[setting])[0]) if setting else ("", "")
        guess = [row for row in csv.DictReader(open(f"{name}-{cap}-guess.csv")) if row["mode"] == "greedy"]
        task, cut = name.split("-")
        out.writerow([task, os.environ.get("TOKENS", 1000), cut, cap, won["setting"], f"{float(won['kept']):.2f}",
                      right := round(float(confirmed["kept"]) * of), of, "{:.0f}\u2013{:.0f} %".format(*wilson(right, of)), *best(False), *best(True), guess[0]["policy"], kept(guess)[0]])
END
