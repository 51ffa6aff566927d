// FastSwitch: the cost of copying block by block.
#include "sim/cost/offload.hpp"
#include "sim/cost/storage.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace fastswitch_numbers {

constexpr Link kPcie{32e9, 10e-6};

double reached(std::uint64_t chunk) {
  return static_cast<double>(chunk) / transfer_time(kPcie, chunk, 1) / kGB;
}

std::vector<Check> checks(Inputs&) {
  const Model model = find_model("llama-3-8b");
  const auto bytes = static_cast<std::uint64_t>(cache_bytes(model, 1000));
  const std::uint64_t copies = pages_of(1000, 16) * model.layers * 2;
  Entries entries(Evidence::derived);
  entries.exact("chunk of a block of 16 tokens, Llama-3-8B", "32", "KiB",
                cache_bytes(model, 16) / static_cast<double>(2 * model.layers) / kKiB, "K or V of one layer");
  entries.exact("copies to swap 1000 tokens", "4032", "copies", static_cast<double>(copies));
  entries.subject(Subject::time);
  entries.exact("bandwidth reached, chunks of 32 KiB", "2.972", "GB/s", reached(32 << 10));
  entries.exact("bandwidth reached, chunks of 320 KiB", "16.2", "GB/s", reached(320 << 10));
  entries.exact("bandwidth reached, chunks of 2 MiB", "27.8", "GB/s", reached(2 << 20));
  entries.exact("bandwidth reached, chunks of 16 MiB", "31.4", "GB/s", reached(16 << 20));
  entries.exact("swap of 1000 tokens, block by block", "44.4", "ms",
                1e3 * transfer_time(kPcie, bytes, copies));
  entries.exact("swap of 1000 tokens, in one piece", "4.1", "ms", 1e3 * transfer_time(kPcie, bytes, 1));
  entries.evidence(Evidence::recalled);
  entries.not_derivable("throughput over vLLM, up to", "1.44", "x",
                        "needs conversations, priorities and a scheduler");
  return entries.take();
}

}  // namespace fastswitch_numbers

Source fastswitch_source() {
  return {"FastSwitch",
          "Shen, Li, Gao, FastSwitch: Optimizing Context Switching Efficiency in Fairness-aware Large "
          "Language Model Serving, arXiv 2411.18424",
          {"PCIe 4 x16 at 32 GB/s and 10 us per copy, Llama-3-8B in blocks of 16 tokens: derived from its "
           "settings, not printed there."},
          {},
          fastswitch_numbers::checks};
}

}  // namespace kvsim::cost
