// TriForce, EasySpec and QuantSpec: what drafting gains, by arithmetic and by the price.
#include "policies/api/composition.hpp"
#include "sim/cost/drafting.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace drafting_numbers {

constexpr double kAccepted = 0.9;

/// JackFram/llama-68m.
Model small_llama() {
  Model model = cache_shape("llama-68m", 2, 12, 12, 64);
  model.hidden = 768;
  model.ffn = 3072;
  model.vocab = 32000;
  return model;
}

policy::Composition parsed(const Inputs& inputs, const char* text) {
  return policy::parse_composition(text, inputs.policies());
}

void triforce(Entries& entries, Inputs& inputs) {
  const Machine machine = inputs.machine("a100-80-sxm");
  const Model large = find_model("llama-2-7b"), small = small_llama();
  entries.exact("TriForce's smallest model, llama-68m, parameters", "68", "M",
                static_cast<double>(small.parameters()) / 1e6);
  const Serving serving = serve(122 * 1024, 256, 1);
  const double weights = static_cast<double>(weight_bytes(large, {}, 1));
  const double ceiling =
      (weights + cache_bytes(large, serving.prompt)) / (weights + cache_bytes(large, 4096));
  entries.exact("TriForce, Llama-2-7B at 122K: all bytes of a step over those with 4,096 tokens", "5.05", "x",
                ceiling, "no round can gain more while a token costs such a step");

  // The policy's cache verifies what the small model drafts, and drafts for the full cache.
  const policy::Composition retrieval = parsed(inputs, "full+triforce(read=4096)");
  const Serving chosen = served_with(serving, retrieval);
  const Holding whole = full_holding(large, large.kv_heads, serving.prompt);
  const auto pass = [&](std::uint64_t tokens) {
    return verification_time(large, machine, chosen, whole, cost_of(retrieval, large, serving.prompt, 4096),
                             tokens, 128)
        .seconds();
  };
  Round inner;
  inner.draft =
      estimate(small, machine, serving, parsed(inputs, "streaming_llm(sinks=16)"), 256).time.per_token;
  inner.verify = [&](std::uint64_t gamma) { return pass(gamma + 1); };
  inner.alone = pass(1);
  const auto gain = [&](double draft) {
    return fastest_drafting(large, machine, serving, draft, kAccepted, 6).speedup;
  };
  entries.subject(Subject::time);
  entries.at_most("TriForce, the same: gain of 4,096 tokens alone, 90 % accepted", "5.05", "x",
                  gain(inner.alone), "the price stays below the bytes' ratio");
  entries.evidence(Evidence::recalled)
      .within({aim::kStep, true}, "TriForce, the same: gain of both levels, 1 and 6 drafted as its code does",
              "2.31", "x", gain(fastest_drafting(inner, kAccepted, 1).per_token),
              "shares of accepted tokens were not read: 90 % are assumed on both levels");
  entries.evidence(Evidence::derived);
}

void easyspec(Entries& entries, Inputs& inputs) {
  const Machine machine = inputs.machine("a100-80-sxm");
  const Model small = find_model("llama-3-8b");
  const Serving serving = serve(512, 256, 1);
  const PassTime step =
      estimate(small, machine, serving, parsed(inputs, "full"), serving.prompt).time.mean_step;
  const double gain = step.seconds() / layer_parallel_time(small, machine, serving, step, 4);
  entries.evidence(Evidence::verified)
      .subject(Subject::time)
      .within({aim::kStep, true}, "EasySpec: drafting by Llama-3-8B, attention of four layers at once",
              "1.62", "x", gain,
              "up to 1.62 is printed, which needs half of a step to be attention: launches of an eager "
              "framework, which are not priced here; a step reads its weights");
  entries.evidence(Evidence::derived);
}

/// Speed-ups where nothing but the cache is read.
void quantspec(Entries& entries, const Inputs& inputs) {
  const Model model = cache_shape("any", 1, 1, 1, 128);
  const std::uint64_t tokens = 1 << 20;
  const auto bytes = [&](const char* text) {
    const Serving serving = served_with({}, parsed(inputs, text));
    return static_cast<double>(full_cache_bytes(model, serving.layout, tokens, 1));
  };
  const double plain = bytes("full"), upper = bytes("full+quantspec(read=upper)") / plain,
               both = bytes("full+quantspec") / plain;
  entries.subject(Subject::bytes);
  entries.exact("QuantSpec: bits of a number that drafting reads", "4.25", "bits", 16 * upper,
                "1,048,576 tokens, of which the last 128 are exact");
  entries.exact("QuantSpec: bits of a number that are held, and read to verify", "8.25", "bits", 16 * both);
  const char* published[] = {"2.43", "2.59", "2.62", "2.59", "2.54", "2.47"};
  for (std::uint64_t gamma = 1; gamma <= 6; ++gamma)
    entries.exact(
        "QuantSpec: gain where the cache alone is read, 90 % accepted, " + std::to_string(gamma) + " drafted",
        published[gamma - 1], "x",
        tokens_of_round(kAccepted, gamma) / (static_cast<double>(gamma) * upper + both),
        gamma == 3 ? "up to 2.5 is printed for whole models" : "");
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::derived);
  triforce(entries, inputs);
  easyspec(entries, inputs);
  quantspec(entries, inputs);
  return entries.take();
}

}  // namespace drafting_numbers

Source drafting_source() {
  return {
      "TriForce, EasySpec, QuantSpec",
      "abstracts of arXiv 2404.11912, 2502.02493 and 2502.10424; code of Infini-AI-Lab/TriForce (164c8c0) "
      "and rishabh-16/QuantSpec (b2c3747)",
      {"Tokens are accepted with one probability, whatever came before; rounds are the fastest ones."},
      {},
      drafting_numbers::checks};
}

}  // namespace kvsim::cost
