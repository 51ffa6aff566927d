# What ranking by keys alone does where keys are latents: what CHOOSING_A_POLICY.md says of them. Two random checkpoints of
# tests/golden/capture, eight prompts of random tokens, equal shares of either cache. Run it in an empty folder with kvsim on the PATH.
set -euo pipefail
golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../tests/golden/capture")
policies=(--policy random --policy l2_norm --policy keydiff --policy h2o --policy tova)
for kind in full:llama_untied_f32 latent:deepseek_v3_latent; do
  name=${kind%%:*}
  for seed in 0 1 2 3 4 5 6 7; do
    python3 -c "import random; r = random.Random($seed); print(*(r.randrange(3, 257) for _ in range(104)))" > ids.txt
    kvsim capture --model "$golden/${kind#*:}" --tokens ids.txt --max-new-tokens 24 --elem f32 -o "$name-$seed.h5" --overwrite > /dev/null
  done
  kvsim trace export "$name-0.h5" -o "$name.safetensors" --overwrite > /dev/null
  kvsim replay "$name"-?.h5 "${policies[@]}" --budget 25%,50% -o "rows-$name.csv" --overwrite --quiet
done
python3 - <<'END'
import array, csv, json, math, statistics, struct

def norms(name):
    """Of keys of the first prompt: their standard deviation over their mean, in each layer."""
    data = open(f"{name}.safetensors", "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for layer in 0, 1:
        about = json.loads(data[8:end])[f"layers.{layer}.k"]
        numbers = array.array("f", data[end + about["data_offsets"][0]:end + about["data_offsets"][1]])
        heads, tokens, dim = about["shape"]
        rows = [math.hypot(*numbers[at:at + dim]) for at in range(0, tokens * dim, dim)]  # of the first head
        yield round(statistics.pstdev(rows) / statistics.mean(rows), 3)

with open("latents.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["cache", "budget", "policy", "prompts", "attention_loss", "least_possible", "better_than_random", "norms_spread"])
    for name in "full", "latent":
        rows = list(csv.DictReader(open(f"rows-{name}.csv", newline="")))
        spread = "/".join(map(str, norms(name)))
        for budget in "25%", "50%":
            drawn = {row["trace"]: float(row["attention_loss"]) for row in rows if (row["policy"], row["budget"]) == ("random", budget)}
            for policy in "random", "l2_norm", "keydiff", "h2o", "tova":
                of = [row for row in rows if (row["policy"], row["budget"]) == (policy, budget)]
                loss = [float(row["attention_loss"]) for row in of]
                best = statistics.mean(float(row["attention_loss_oracle"]) for row in of)
                better = sum(one < drawn[row["trace"]] for one, row in zip(loss, of))
                out.writerow([name, budget, policy, len(of), f"{statistics.mean(loss):.3f}", f"{best:.3f}", better, spread])
END
for theme in light dark; do
  file=latents.svg && [ $theme = light ] || file=latents.dark.svg
  kvsim plot differences rows-latent.csv --metric attention_loss --budget 25% --theme $theme -o $file --overwrite
done
