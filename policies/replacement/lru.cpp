// Evicts the block that was not used for longest.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::lru {
namespace {

class Lru final : public QueueReplacement {
 public:
  using QueueReplacement::QueueReplacement;
  void hit(Block block, BlockStore&) override { queue().renew(block); }
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "lru",
      .summary = "evicts the block that was not used for longest, of a prompt the last one first",
      .paper = "vLLM, automatic prefix caching, https://docs.vllm.ai/en/latest/design/prefix_caching.html",
      .details =
          "A request's blocks become the newest, its first block last, so that a prompt loses its end before "
          "its beginning and a block is never resident without those before it. All capacities follow from "
          "one pass (Mattson, Gecsei, Slutz, Traiger, Evaluation techniques for storage hierarchies, IBM "
          "Systems Journal 1970).",
      .departures = {{"vLLM: recency is the time at which the last request that holds a block ends",
                      "the time at which the request is told; in a replay of instantaneous requests they are "
                      "the same"}},
      .rule =
          ReplacementRule{.make = made<Lru>, .make_nodes = nodes_by([](const RadixNode&) { return 0.0; })}};
}

}  // namespace kvsim::policy::lru
