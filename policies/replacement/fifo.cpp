// Evicts the block that was stored first.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::fifo {
namespace {

class Fifo final : public Replacement {
 public:
  explicit Fifo(const BlockSpace& space) : links_(space.blocks), queue_(links_) {}

  void look_again() override { queue_.restart(); }
  void hit(Block, BlockStore&) override {}
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    store.store(block);
    queue_.push(block);
  }
  void evict(BlockStore& store) override { queue_.evict_candidate(store); }

 private:
  BlockLinks links_;
  BlockQueue queue_;
};

}  // namespace

PolicySpec spec() {
  return {.name = "fifo",
          .summary = "evicts the block that was stored first, whether it was used since or not",
          .details = "Of the blocks that one request stores the last one leaves first.",
          .rule = ReplacementRule{
              .make = made<Fifo>,
              .make_nodes = [](const Params&, const BlockSpace& space) -> std::unique_ptr<Replacement> {
                return std::make_unique<RadixNodes>(
                    space, [](const RadixNode& node) { return static_cast<double>(node.stored); });
              }}};
}

}  // namespace kvsim::policy::fifo
