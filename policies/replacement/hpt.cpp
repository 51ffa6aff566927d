// Evicts the block whose hits save least per token.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/greedy_dual.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::hpt {

PolicySpec spec() {
  return {
      .name = "hpt",
      .summary = "evicts the block whose uses, times seconds of recomputing it, are least; without ageing",
      .paper = "SGLang, --radix-eviction-policy hpt, https://github.com/sgl-project/sglang/pull/30300",
      .details =
          "Value = uses * seconds; of equal values the least recently used leaves. Of whole nodes the value "
          "is (uses + 1) / blocks, as SGLang has it.",
      .departures = {{"SGLang: uses of a radix node, and one more, over its tokens",
                      "blocks are all of one size, so that a use counts the modelled seconds that it saves"}},
      .rule = ReplacementRule{
          .make = [](const Params&,
                     const BlockSpace& space) { return std::make_unique<GreedyDual>(space, true, false); },
          .make_nodes = nodes_by([](const RadixNode& node) { return (node.uses + 1.0) / node.blocks; })}};
}

}  // namespace kvsim::policy::hpt
