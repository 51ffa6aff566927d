// XKV, Fig. 1 and Table IV.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace xkv_numbers {

/// Tokens in the cache: not printed, found from the size of FullKV's.
constexpr double kTokens = 8192;
constexpr const char* kFullKv = "XKV, Table IV, cache of FullKV";
constexpr std::uint64_t kGenerated = 128;
/// Of the tokens, the paper's mean.
constexpr double kKeptShare = 0.384;

std::vector<Check> checks(Inputs& inputs) {
  const double context = inputs.fitted(kFullKv, kTokens);
  const auto tokens_cached = static_cast<std::uint64_t>(context);
  const std::uint64_t prompt = tokens_cached - kGenerated;
  const auto kept = static_cast<std::uint64_t>(std::llround(kKeptShare * context));
  const Model model = find_model("llama-3-8b");
  const Machine a6000 = inputs.machine("rtx-a6000");
  Serving serving = serve(prompt, kGenerated, 1);
  serving.layout.stored_kv_heads = model.query_heads;
  const auto gibibytes = [&](std::uint64_t tokens, std::uint64_t batch) {
    return static_cast<double>(full_cache_bytes(model, serving.layout, tokens, batch)) / kGiB;
  };
  const Holding full = evenly(model, model.query_heads, prompt);
  const Holding xkv = evenly(model, model.query_heads, kept, kept);
  const policy::Cost nothing{};

  Entries entries(Evidence::verified);
  entries.exact("Fig. 1, KV cache at 1K tokens, batch 10", "5", "GB", gibibytes(1024, 10),
                "1.25 with the 8 heads the model has");
  entries.exact("Fig. 1, KV cache at 8K tokens, batch 10", "40", "GB", gibibytes(8192, 10),
                "10 with the 8 heads the model has");
  entries.exact("Fig. 1, weights", "16", "GB", static_cast<double>(weight_bytes(model, Runtime{}, 1)) / kGB,
                "decimal GB, beside GiB of cache in the same figure");
  entries.of(kFullKv).exact("Table IV, FullKV, cache of one sequence", "4.00", "GB",
                            gibibytes(tokens_cached, 1), "8192 tokens are found from this number");
  entries.of("").exact("Table IV, XKV, cache of one sequence", "1.54", "GB", gibibytes(kept, 1),
                       "38.4 % of 8192 tokens, the paper's mean");
  const auto largest = [&](const Holding& held) {
    const Memory one = memory_at(model, a6000, serving, held, nothing, kGenerated);
    const double fixed = static_cast<double>(one.total() - one.cache());
    return std::floor((48 * kGiB - fixed) / static_cast<double>(one.cache()));
  };
  entries.within(0.126, "Table IV, FullKV, largest batch on 48 GB", "8", "sequences", largest(full),
                 "one sequence of tolerance: the paper divides 48 - 16 by 4.00, ours takes off the runtime's "
                 "share, too");
  entries.within(0.051, "Table IV, XKV, largest batch on 48 GB", "20", "sequences", largest(xkv),
                 "one sequence of tolerance; while decoding, prompts having come one after another");

  entries.subject(Subject::time);
  const auto step = [&](const Holding& held, std::uint64_t batch) {
    Serving served = serving;
    served.batch = batch;
    return latency(model, a6000, served, held, nothing).mean_step.seconds();
  };
  entries.contradicted("Table IV, time of FullKV over XKV", "2.11", "x", step(full, 1) / step(xkv, 1),
                       "ours is of decode steps; the cache is a fifth of what a step reads, and 8K of "
                       "prefill alone take a second");
  entries.contradicted("throughput, XKV at batch 20 over FullKV at batch 8", "5.2", "x",
                       20 / step(xkv, 20) / (8 / step(full, 8)),
                       "2.11 times 20 / 8: batches of different size are taken to take the same time");
  return entries.take();
}

}  // namespace xkv_numbers

Source xkv_source() {
  return {"XKV",
          "Li, Wang, Gu, Yu, XKV: Personalized KV Cache Memory Reduction for Long-Context LLM Inference, "
          "arXiv 2412.05896",
          {"Keys and values are stored for all 32 query heads: grouped heads are expanded before caching, as "
           "the implementation does.",
           "GB of cache are GiB."},
          {},
          xkv_numbers::checks};
}

}  // namespace kvsim::cost
