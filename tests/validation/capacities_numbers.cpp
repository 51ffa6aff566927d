// Sizes stated in READMEs and abstracts.
#include "policies/api/composition.hpp"
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace capacities_numbers {

constexpr const char* kZipCache = "ZipCache, memory saved";

/// Returns the share of the memory of weights and cache that is saved when the cache shrinks.
double saved(const Model& model, std::uint64_t tokens, std::uint64_t batch, double compression) {
  const double weights = static_cast<double>(weight_bytes(model, Runtime{}, 1));
  const double cache = cache_bytes(model, tokens, batch);
  return 1 - (weights + cache / compression) / (weights + cache);
}

/// Returns the factor by which 2 bits shrink the cache of 498 tokens when the latest `residual` tokens stay
/// in 16 bits, of keys, too.
double kivi(const Inputs& inputs, std::uint64_t residual) {
  const policy::Composition kivi = policy::parse_composition(
      "full+kivi(keys=token,residual=" + std::to_string(residual) + ")", inputs.policies());
  const policy::StorageShape shape{1, 128, 128, 16};
  constexpr std::uint64_t kTokens = 498;
  return static_cast<double>(policy::exact_ledger(shape, kTokens).bits()) /
         static_cast<double>(kivi.representation->ledger(shape, kTokens, 0).bits());
}

/// Memory on an RTX 4090 when all keys and values are on the host except for the first 128 and the latest 512
/// tokens.
double retrieval_attention(Inputs& inputs, const Model& model) {
  constexpr std::uint64_t kStays = 128 + 512;
  const Holding held = evenly(model, model.kv_heads, kStays, kStays);
  const Serving serving = serve(131072, 1, 1);
  return static_cast<double>(memory_at(model, inputs.machine("rtx-4090"), serving, held, {}, 0).total());
}

std::vector<Check> checks(Inputs& inputs) {
  const Model small = find_model("llama-3.1-8b"), large = find_model("llama-3.1-70b");
  Entries entries(Evidence::verified);
  entries.within(aim::kBytes, "kvpress, Llama-3.1-70B, a million tokens (printed: up to)", "330", "GB",
                 cache_bytes(large, 1000000) / kGB, "decimal GB");
  entries.within(
      aim::kBytes, "RetrievalAttention, an RTX 4090's memory for 128K tokens of an 8B model", "16", "GB",
      retrieval_attention(inputs, small) / kGiB,
      "keys and values are on the host but for 640 tokens: weights, these and the runtime stay. GB "
      "is GiB, as in the card's 24 GB");
  entries.of(kZipCache).within(
      0.15, "ZipCache, Llama-3-8B, 4096 tokens, memory saved at 4.98x", "19.8", "%",
      100 * saved(small, 4096, static_cast<std::uint64_t>(inputs.fitted(kZipCache, 8)), 4.98),
      "the batch is not given, 8 was chosen for this number; weights and cache, no activations");
  entries.contradicted("ZipCache, the same for one sequence", "19.8", "%", 100 * saved(small, 4096, 1, 4.98),
                       "weights are thirty times the cache");
  entries.evidence(Evidence::derived);
  const char* latest = "16 bits for the latest tokens of values and, as derived, of keys";
  entries.exact("KIVI in 2 bits, cache of 498 tokens, residual 128", "2.52", "x", kivi(inputs, 128), latest);
  entries.exact("KIVI in 2 bits, cache of 498 tokens, residual 32", "4.17", "x", kivi(inputs, 32), latest);
  entries.evidence(Evidence::verified);
  entries.not_derivable(
      "KIVI, peak memory with weights", "2.6", "x",
      "depends on a residual and a batch that are not given: with 128 the cache alone shrinks less");
  return entries.take();
}

}  // namespace capacities_numbers

Source capacities_source() {
  return {"Sizes stated in passing",
          "READMEs and abstracts of kvpress (github.com/NVIDIA/kvpress), RetrievalAttention (arXiv "
          "2409.10516), ZipCache (arXiv 2405.14256), KIVI (arXiv 2402.02750)",
          {"Keys and values of the stored KV heads in 16 bits unless a row says otherwise."},
          {},
          capacities_numbers::checks};
}

}  // namespace kvsim::cost
