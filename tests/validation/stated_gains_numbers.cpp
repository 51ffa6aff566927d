// Gains stated in abstracts, shown but not asserted, because their conditions are incomplete.
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace stated_gains_numbers {

constexpr struct {
  const char* quantity;
  const char* published;
  Subject subject;
} kGains[] = {{"RotateKV, 2 bits, peak memory", "3.97", Subject::bytes},
              {"RotateKV, 2 bits, batch", "5.75", Subject::bytes},
              {"RotateKV, 2 bits, decoding", "2.32", Subject::time},
              {"KIVI, batch", "4", Subject::bytes},
              {"KIVI, throughput, up to", "3.47", Subject::time},
              {"GEAR, peak memory", "2.29", Subject::bytes},
              {"GEAR, throughput", "2.38", Subject::time},
              {"Keyformer, latency", "2.1", Subject::time},
              {"Keyformer, tokens per second", "2.4", Subject::time},
              {"MiniCache, compression", "5.02", Subject::bytes},
              {"MiniCache, throughput", "5", Subject::time},
              {"ShadowKV, batch", "6", Subject::bytes},
              {"ShadowKV, throughput", "3.04", Subject::time},
              {"TidalDecode, latency", "2.1", Subject::time},
              {"Double Sparsity, end to end", "1.9", Subject::time},
              {"Double Sparsity, with offload at 256K", "16.3", Subject::time},
              {"CacheBlend, TTFT, up to", "3.3", Subject::time},
              {"CacheBlend, throughput, up to", "5", Subject::time}};

std::vector<Check> checks(Inputs&) {
  Entries entries(Evidence::verified);
  for (const auto& gain : kGains)
    entries.subject(gain.subject)
        .not_derivable(gain.quantity, gain.published, "x", "model, lengths, batch or machine are not given");
  entries.subject(Subject::time)
      .not_derivable(
          "InstInfer over FlexGen, a 13B model on an RTX A6000, up to", "11.1", "x",
          "its drives compute attention: their rates are no part of these models, and the abstract "
          "gives no lengths")
      .not_derivable("RetrievalAttention, 8B, 128K on an RTX 4090, a token", "0.188", "s",
                     "an index on the host answers, of which only the result is given");
  return entries.take();
}

}  // namespace stated_gains_numbers

Source stated_gains_source() {
  return {"Gains that abstracts state",
          "RotateKV, KIVI (arXiv 2402.02750), GEAR, Keyformer (arXiv 2403.09054), MiniCache, ShadowKV (arXiv "
          "2410.21465), TidalDecode (arXiv 2410.05076), Double Sparsity (arXiv 2408.07092), CacheBlend "
          "(arXiv 2405.16444), InstInfer (arXiv 2409.04992), RetrievalAttention (arXiv 2409.10516)",
          {"At equal batch no compression of the cache makes a decode step faster than the bytes it saves: "
           "weights and cache over weights and compressed cache."},
          {},
          stated_gains_numbers::checks};
}

}  // namespace kvsim::cost
