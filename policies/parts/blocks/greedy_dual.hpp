#pragma once
/// Policies that evict the block of the lowest value, where a value is frequency times cost, and ages: what
/// was evicted last raises the values that are given out afterwards.
#include <vector>

#include "policies/api/replacement.hpp"
#include "policies/parts/blocks/block_heap.hpp"

namespace kvsim::policy {

class GreedyDual final : public Replacement {
 public:
  /// `by_seconds`: the cost of a block is what recomputing it takes; otherwise 1.
  GreedyDual(const BlockSpace& space, bool by_seconds, bool ages)
      : space_(space), by_seconds_(by_seconds), ages_(ages), uses_(space.blocks, 0), heap_(space.blocks) {}

  void look_again() override { heap_.restart(); }
  void hit(Block block, BlockStore&) override {
    ++uses_[block];
    value(block);
  }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    uses_[block] = 1;
    value(block);
    store.store(block);
  }
  void evict(BlockStore& store) override {
    const Block victim = heap_.candidate(store);
    if (ages_) age_ = heap_.key(victim).value;
    heap_.remove(victim);
    store.evict(victim);
  }

 private:
  void value(Block block) {
    const double cost = by_seconds_ ? space_.seconds_of(block) : 1.0;
    heap_.set(block, {age_ + uses_[block] * cost, clock_++});
  }

  BlockSpace space_;
  bool by_seconds_, ages_;
  std::vector<std::uint32_t> uses_;  ///< while it is resident
  BlockHeap heap_;
  std::uint64_t clock_ = 0;
  double age_ = 0;
};

}  // namespace kvsim::policy
