#pragma once
/// Queues of blocks as lists in arrays: a block stands in one queue at most of those that share their links.
#include <cstddef>
#include <vector>

#include "policies/api/replacement.hpp"

namespace kvsim::policy {

struct BlockLinks {
  explicit BlockLinks(std::size_t blocks) : newer(blocks, kNoBlock), older(blocks, kNoBlock) {}
  std::vector<Block> newer, older;
};

/// Blocks enter as the newest; the oldest that is not pinned is offered as victim.
class BlockQueue {
 public:
  explicit BlockQueue(BlockLinks& links) : links_(&links) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Block oldest() const { return oldest_; }
  Block newest() const { return newest_; }
  Block newer(Block block) const { return links_->newer[block]; }

  void push(Block block) {
    links_->newer[block] = kNoBlock;
    links_->older[block] = newest_;
    (newest_ == kNoBlock ? oldest_ : links_->newer[newest_]) = block;
    newest_ = block;
    if (exhausted_) {
      exhausted_ = false;
      passed_ = block;
    }
    ++size_;
  }
  void remove(Block block) {
    const Block newer = links_->newer[block], older = links_->older[block];
    if (passed_ == block) {
      passed_ = newer;
      exhausted_ = newer == kNoBlock;
    }
    (newer == kNoBlock ? newest_ : links_->older[newer]) = older;
    (older == kNoBlock ? oldest_ : links_->newer[older]) = newer;
    --size_;
  }
  /// The block becomes the newest.
  void renew(Block block) {
    remove(block);
    push(block);
  }
  Block pop() {
    const Block block = oldest_;
    remove(block);
    return block;
  }

  /// Pins changed: look at all blocks again.
  void restart() {
    passed_ = kNoBlock;
    exhausted_ = false;
  }
  /// The oldest block for which `stays` is false, or kNoBlock. Those before it stayed already when the
  /// request began and are not looked at again, so that a request's own blocks at the end of a queue are
  /// passed once and not once for each miss.
  template <class Stays>
  Block oldest_unless(const Stays& stays) {
    if (exhausted_) return kNoBlock;
    Block block = passed_ == kNoBlock ? oldest_ : passed_;
    while (block != kNoBlock && stays(block)) block = links_->newer[block];
    passed_ = block;
    exhausted_ = block == kNoBlock && size_ > 0;
    return block;
  }
  /// The oldest block that is not pinned, or kNoBlock.
  Block candidate(const BlockStore& store) {
    return oldest_unless([&](Block block) { return store.pinned(block); });
  }
  /// Takes the candidate out of the queue and out of the cache; there is one.
  void evict_candidate(BlockStore& store) {
    const Block victim = candidate(store);
    remove(victim);
    store.evict(victim);
  }

 private:
  BlockLinks* links_;
  Block oldest_ = kNoBlock, newest_ = kNoBlock;
  Block passed_ = kNoBlock;  ///< where to look on; kNoBlock: at the oldest
  bool exhausted_ = false;   ///< all of them are pinned
  std::size_t size_ = 0;
};

/// A replacement with one queue, whose blocks begin as the newest.
class QueueReplacement : public Replacement {
 public:
  explicit QueueReplacement(const BlockSpace& space) : links_(space.blocks), queue_(links_) {}

  void look_again() override { queue_.restart(); }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    store.store(block);
    queue_.push(block);
  }
  void evict(BlockStore& store) override { queue_.evict_candidate(store); }

 protected:
  BlockQueue& queue() { return queue_; }

 private:
  BlockLinks links_;
  BlockQueue queue_;
};

}  // namespace kvsim::policy
