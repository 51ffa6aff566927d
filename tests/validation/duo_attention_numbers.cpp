// DuoAttention: 3.3 million tokens on one card.
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace duo_attention_numbers {

constexpr std::uint64_t kTokens = 3300000, kSinks = 64, kRecent = 256;

Serving four_bits() {
  Serving serving = serve(kTokens, 0, 1);
  serving.layout.storage.element_bits = 4;  // without scales, as its authors count
  serving.runtime.weight_bits = 8;
  return serving;
}

std::vector<Check> checks(Inputs&) {
  const Model model = find_model("llama-3-8b");
  const Serving serving = four_bits();
  const std::uint64_t half = model.kv_heads / 2;
  const Holding duo{
      {{model.layers, {{half, kTokens, kNoLimit}, {half, kSinks + kRecent, kSinks + kRecent}}}}};
  const Memory memory = memory_at(model, Machine{}, serving, duo, {}, 0);
  const double full = static_cast<double>(full_cache_bytes(model, serving.layout, kTokens, 1));
  Entries entries(Evidence::derived);
  entries.exact("3.3M tokens, full cache in 16 bits", "432.5", "GB", cache_bytes(model, kTokens) / kGB);
  entries.exact("3.3M tokens, full cache in 4 bits", "108.13", "GB", full / kGB,
                "beside 8 GB of weights it does not fit");
  entries.exact("3.3M tokens, half of the heads streaming, 4 bits", "54.07", "GB",
                static_cast<double>(memory.keys_values) / kGB);
  entries.evidence(Evidence::verified);
  entries.at_most("3.3M tokens, 4-bit cache and 8-bit weights on one A100-80", "80", "GB",
                  static_cast<double>(memory.keys_values + memory.weights) / kGB,
                  "the claim is that it fits");
  const char* length =
      "the length it was measured at is not given; it lies between 1 and the limit of the formula";
  entries.not_derivable("memory over full attention, MHA", "2.55", "x", length);
  entries.not_derivable("memory over full attention, GQA", "1.67", "x", length);
  entries.subject(Subject::time);
  entries.not_derivable("decoding over full attention, MHA", "2.18", "x", length);
  entries.not_derivable("decoding over full attention, GQA", "1.50", "x", length);
  entries.not_derivable("prefill over full attention, MHA", "1.73", "x", length);
  entries.not_derivable("prefill over full attention, GQA", "1.63", "x", length);
  return entries.take();
}

}  // namespace duo_attention_numbers

Source duo_attention_source() {
  return {"DuoAttention",
          "Xiao, Tang, Zuo, Guo, Yang, Tang, Fu, Han, DuoAttention: Efficient Long-Context LLM Inference "
          "with Retrieval and Streaming Heads, ICLR 2025, arXiv 2410.10819",
          {"Llama-3-8B, half of the KV heads keep everything, the others 64 sinks and 256 recent tokens; 4 "
           "bits without scales, GB decimal."},
          {},
          duo_attention_numbers::checks};
}

}  // namespace kvsim::cost
