// Evicts the block that was used least often, with or without ageing.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/greedy_dual.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::lfu {

PolicySpec spec() {
  return {
      .name = "lfu",
      .aliases = {"lfu_da"},
      .summary = "evicts the block that was used least often since it was stored; counts age",
      .paper =
          "Arlitt, Cherkasova, Dilley, Friedrich, Jin, Evaluating content management techniques for Web "
          "proxy caches, ACM SIGMETRICS Performance Evaluation Review 2000 (LFU with dynamic ageing)",
      .details =
          "A block's value is its number of uses plus the value of the last block evicted before its "
          "last use, so "
          "that what was popular once leaves in time. Of equal values the least recently used leaves.",
      .departures = {{"the paper's text was not at hand",
                      "the key is that of its authors' code in Squid, repl/heap: age plus uses"},
                     {"SGLang's lfu counts hits without ageing", "age=false"},
                     {"libCacheSim's LFUDA adds the age again at every hit", "the age of the last use"}},
      .params = {flag_param("age", "true", "whether values age by those that were evicted")},
      .rule = ReplacementRule{
          .make =
              [](const Params& params, const BlockSpace& space) {
                return std::make_unique<GreedyDual>(space, false, params.flag("age"));
              },
          .make_nodes = [](const Params& params, const BlockSpace& space) -> std::unique_ptr<Replacement> {
            return params.flag("age") ? std::make_unique<RadixNodes>(
                                            space, [](const RadixNode& node) { return node.age + node.uses; })
                                      : std::make_unique<RadixNodes>(space, [](const RadixNode& node) {
                                          return static_cast<double>(node.uses);
                                        });
          }}};
}

}  // namespace kvsim::policy::lfu
