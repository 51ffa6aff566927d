// Evicts the block that was stored first.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::fifo {
namespace {

class Fifo final : public QueueReplacement {
 public:
  using QueueReplacement::QueueReplacement;
  void hit(Block, BlockStore&) override {}
};

}  // namespace

PolicySpec spec() {
  return {.name = "fifo",
          .summary = "evicts the block that was stored first, whether it was used since or not",
          .details = "Of the blocks that one request stores the last one leaves first.",
          .rule = ReplacementRule{.make = made<Fifo>, .make_nodes = nodes_by([](const RadixNode& node) {
                                                        return static_cast<double>(node.stored);
                                                      })}};
}

}  // namespace kvsim::policy::fifo
