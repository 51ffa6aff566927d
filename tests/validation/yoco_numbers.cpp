// YOCO's cache, prefill and throughput, beside a Transformer of the same sizes.
#include "policies/api/composition.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace yoco_numbers {

constexpr std::uint64_t kK = 1024, kM = 1024 * 1024;

/// All 26 layers attend, and each has keys and values.
Model transformer() {
  Model model = find_model("yoco-3b");
  model.name = "a Transformer of these sizes";
  model.kinds = {};
  model.recurrence = {};
  return model;
}

/// Weights and what 1M tokens leave behind.
double held(const Model& model, std::uint64_t tokens) {
  const SequenceBytes bytes = sequence_bytes(model, serve(tokens, 0, 1), {.kept = tokens});
  return static_cast<double>(weight_bytes(model, {}, 1) + bytes.all());
}

void sizes(Entries& entries, const Model& yoco, const Model& plain) {
  entries.evidence(Evidence::derived)
      .exact("YOCO-3B, keys and values of a token", "4096", "B", cache_bytes(yoco, 1),
             "one layer of 8 heads of 128, 16 bits");
  entries.exact("the Transformer's", "106496", "B", cache_bytes(plain, 1));
  entries.exact("YOCO-3B, states of a sequence", "10.22", "MB",
                static_cast<double>(yoco.remembering_layers() * yoco.state_bytes()) / kMB,
                "13 layers of 24 heads of 128 times 128, 16 bits");
  entries.evidence(Evidence::verified)
      .exact("YOCO-3B, parameters without embeddings", "2.8", "B",
             static_cast<double>(yoco.parameters() - yoco.embedding_parameters()) / 1e9);
  entries.at_most("YOCO-3B, memory for 1M tokens", "12.4", "GB", held(yoco, kM) / kGB,
                  "weights and cache; the rest is activations of chunks that are not stated");
  entries.within({aim::kBytes}, "the Transformer's memory for 1M tokens over these 12.4 GB", "9.4", "x",
                 held(plain, kM) / (12.4 * kGB), "weights and cache");
  // LLaMA-65B with grouped queries, as 8 of 64 heads.
  const Model large = cache_shape("65B", 80, 64, 8, 128);
  Layout bytes;
  bytes.storage.element_bits = 8;
  entries.exact("65B, 8 KV heads, 8 bits: cache of 512K tokens", "86", "GB",
                static_cast<double>(full_cache_bytes(large, bytes, 512 * kK, 1)) / kGB);
  entries.exact("65B: its cache over that of one layer", "80", "x",
                cache_bytes(large, 1) / cache_bytes(cache_shape("once", 1, 64, 8, 128), 1));
  const char* why = "8 KV heads make 86 GB of 512K tokens in 8 bits; in 16 bits a token takes twice that";
  entries.contradicted("65B, 8 KV heads, 16 bits: thousands of tokens in 1 GB", "1.6", "",
                       kGB / cache_bytes(large, 1) / 1000, why);
}

void times(Entries& entries, Inputs& inputs, const Model& yoco, const Model& plain) {
  const Machine machine = inputs.machine("h100-sxm");
  const auto prefill = [&](const Model& model, std::uint64_t tokens) {
    Serving serving = serve(tokens, 0, 1);
    serving.chunk = 32 * kK;
    const Holding whole = full_holding(model, model.kv_heads, tokens);
    return prefill_time(model, machine, serving, whole, {}).seconds();
  };
  entries.subject(Subject::time);
  entries.within({aim::kStep, true}, "the Transformer's prefill of 512K tokens", "180", "s",
                 prefill(plain, 512 * kK), "one H100; 1M tokens, four times the attention, take 300 s there");
  entries.within({aim::kStep}, "the Transformer's prefill of 1M tokens", "300", "s", prefill(plain, kM));
  entries.at_most("YOCO-3B, prefill of 512K tokens", "6", "s", prefill(yoco, 512 * kK));
  entries.within({aim::kStep}, "prefill of 32K tokens, how many times faster", "2.87", "x",
                 prefill(plain, 32 * kK) / prefill(yoco, 32 * kK));
  entries.within({aim::kStep, true}, "prefill of 1M tokens, how many times faster", "71.8", "x",
                 prefill(plain, kM) / prefill(yoco, kM), "300 s over 71.8 is 4.2 s, for 1M tokens");
  // The last 1,024 of 512K tokens are generated; as many sequences as fit.
  const auto rate = [&](const Model& model) {
    Serving serving = serve(511 * kK, kK, 1);
    const double sequence = held(model, 512 * kK) - static_cast<double>(weight_bytes(model, {}, 1));
    serving.batch =
        static_cast<std::uint64_t>((80e9 - static_cast<double>(weight_bytes(model, {}, 1))) / sequence);
    serving.chunk = 32 * kK;
    const Holding whole = full_holding(model, model.kv_heads, serving.prompt);
    return latency(model, machine, serving, whole, {}).tokens_per_second;
  };
  entries.within({aim::kStep, true}, "the Transformer, 1,024 tokens behind 511K", "4.5", "tokens/s",
                 rate(plain), "prefill and generation; 80 GB full of weights and caches");
  entries.within({aim::kStep, true}, "YOCO-3B, the same", "43.1", "tokens/s", rate(yoco),
                 "the batch is not stated");
  entries.within({aim::kStep, true}, "tokens per second, how many times as many", "9.6", "x",
                 rate(yoco) / rate(plain));
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  const Model yoco = find_model("yoco-3b"), plain = transformer();
  sizes(entries, yoco, plain);
  times(entries, inputs, yoco, plain);
  return entries.take();
}

}  // namespace yoco_numbers

Source yoco_source() {
  return {"YOCO",
          "Sun et al., You Only Cache Once, arXiv 2405.05254, sections 1 and 4.4; sizes of microsoft/unilm "
          "(768a3c8), YOCO",
          {"Half of 26 layers hold a state each, half share one cache, and of a prompt the last token alone "
           "passes through these. The Transformer has 26 layers with a cache each. 32K tokens of a prompt at "
           "once."},
          {},
          yoco_numbers::checks};
}

}  // namespace kvsim::cost
