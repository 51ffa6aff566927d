// SIEVE: a hand passes blocks that were used and evicts the first that was not.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::sieve {
namespace {

class Sieve final : public Replacement {
 public:
  explicit Sieve(const BlockSpace& space)
      : links_(space.blocks), queue_(links_), used_(space.blocks, false) {}

  void hit(Block block, BlockStore&) override { used_[block] = true; }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    used_[block] = false;
    store.store(block);
    queue_.push(block);
  }
  void evict(BlockStore& store) override {
    Block victim = hand_ == kNoBlock ? queue_.oldest() : hand_;
    while (used_[victim] || store.pinned(victim)) {
      // What is pinned was not decided about: its mark stays.
      if (!store.pinned(victim)) used_[victim] = false;
      victim = queue_.newer(victim) == kNoBlock ? queue_.oldest() : queue_.newer(victim);
    }
    hand_ = queue_.newer(victim);
    queue_.remove(victim);
    store.evict(victim);
  }

 private:
  BlockLinks links_;
  BlockQueue queue_;
  std::vector<bool> used_;
  Block hand_ = kNoBlock;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "sieve",
      .summary =
          "a hand goes from old to new blocks, forgives those that were used and evicts the first that "
          "was not",
      .paper =
          "Zhang, Yang, Yue, Vigfusson, Rashmi, SIEVE is Simpler than LRU, NSDI 2024, "
          "https://www.usenix.org/conference/nsdi24/presentation/zhang-yazhuo",
      .details =
          "Blocks stay in the order in which they were stored. The hand begins at the oldest, clears the "
          "marks of used blocks that it passes, and goes on behind the evicted one next time. Pinned blocks "
          "are passed with their marks.",
      .departures = {{"the paper's text beyond its abstract was not at hand",
                      "the rule is its authors' in libCacheSim, which hits exactly as many single blocks"}},
      .rule = ReplacementRule{.make = made<Sieve>}};
}

}  // namespace kvsim::policy::sieve
