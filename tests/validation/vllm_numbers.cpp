// vLLM: Fig. 2 and the arithmetic of its text.
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"
#include "tests/validation/fragmentation.hpp"

namespace kvsim::cost {
namespace vllm_numbers {

constexpr Request kMean[] = {{161, 338}};

double used(Allocator allocator) {
  return 100 * fragmentation(allocator, kMean, 2048, 16).used;
}

std::vector<Check> checks(Inputs&) {
  const Model opt = find_model("opt-13b");
  Entries entries(Evidence::verified);
  entries.exact("KV cache of a token, OPT-13B", "800", "KB", cache_bytes(opt, 1) / kKiB, "KB is KiB");
  entries.exact("KV cache of 2048 tokens, OPT-13B", "1.6", "GB", cache_bytes(opt, 2048) / kGiB, "GB is GiB");
  entries.within(aim::kBytes, "weights of OPT-13B, share of an A100-40", "65", "%",
                 100 * static_cast<double>(weight_bytes(opt, Runtime{}, 1)) / (40 * kGB), "decimal GB");
  constexpr struct {
    const char* quantity;
    const char* published;
  } kExternal[] = {
      {"Orca (Pow2), token states", "26.8"},           {"Orca (Pow2), reservation", "17.9"},
      {"Orca (Pow2), internal fragmentation", "13.6"}, {"Orca (Pow2), external and other", "41.6"},
      {"Orca (Oracle), token states", "38.2"},         {"Orca (Oracle), reservation", "25.2"},
      {"Orca (Oracle), external and other", "36.6"},   {"Orca (Max), external and other", "8.9"}};
  for (const auto& row : kExternal)
    entries.not_derivable(
        std::string("Fig. 2, ") + row.quantity, row.published, "%",
        "external fragmentation depends on the lengths of the requests, which are not printed");
  entries.evidence(Evidence::recalled);
  const char* mean = "every request takes ShareGPT's mean lengths, 161 + 338, which are not read again";
  const Fragmentation longest = fragmentation(Allocator::longest, kMean, 2048, 16);
  entries.within(0.25, "Fig. 2, Orca (Max), token states", "20.4", "%", used(Allocator::longest), mean);
  entries.within(0.4, "Fig. 2, Orca (Max), reservation", "13.3", "%", 100 * longest.reserved, mean);
  entries.within(0.4, "Fig. 2, Orca (Max), internal fragmentation", "57.3", "%", 100 * longest.internal,
                 mean);
  entries.within(0.02, "Fig. 2, vLLM, token states", "96.3", "%", used(Allocator::paged), mean);
  entries.evidence(Evidence::verified).subject(Subject::time);
  entries.not_derivable("paged attention kernel over a contiguous one, slowdown", "26", "%",
                        "a kernel's own");
  entries.not_derivable("recomputation of a sequence over swapping it, most", "20", "%",
                        "machine and lengths of the comparison are not given in full");
  return entries.take();
}

}  // namespace vllm_numbers

Source vllm_source() {
  return {"vLLM",
          "Kwon, Li, Zhuang, Sheng, Zheng, Yu, Gonzalez, Zhang, Stoica, Efficient Memory Management for "
          "Large Language Model Serving with PagedAttention, SOSP 2023",
          {"Shares of memory are averages over a request's life, which ShareGPT's mean request stands for."},
          {},
          vllm_numbers::checks};
}

}  // namespace kvsim::cost
