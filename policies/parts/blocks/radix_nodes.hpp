#pragma once
/// Policies whose unit is the node of a radix tree, as SGLang's prefix cache has it
/// (python/sglang/srt/mem_cache/ radix_cache.py): what a prompt leaves behind what was there already becomes
/// one node, a prompt that ends or turns off inside a node splits it, and the leaf of the lowest value leaves
/// as a whole, until there is room. Nodes are not joined again. What is resident is therefore always leading
/// runs, and a cache that let go of a long leaf for a short prompt has room to spare.
#include <cstddef>
#include <memory>
#include <vector>

#include "policies/api/replacement.hpp"
#include "policies/parts/blocks/block_heap.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

/// What a value may depend on. Both halves of a node that is split keep the counts of the whole.
struct RadixNode {
  std::uint64_t used = 0;  ///< when, counted in requests; the lower of two equal values leaves first by this
  std::uint64_t stored = 0;  ///< when
  std::uint32_t uses = 0;    ///< requests that used it; the one that stored it counts
  std::uint32_t blocks = 0;
  std::int32_t priority = 0;  ///< the highest of these requests
  double age = 0;             ///< at its last use: the value of the last node that left before
};

class RadixNodes final : public Replacement {
 public:
  using Value = double (*)(const RadixNode&);

  RadixNodes(const BlockSpace& space, Value value)
      : space_(space), value_(value), nodes_(space.blocks), lasts_(space.blocks), heap_(space.blocks) {}

  void start(const RequestView& request, BlockStore& store) override {
    const std::span<const Block> path = request.path;
    std::size_t run = 0, end = 0;
    while (run < path.size() && store.resident(path[run])) ++run;
    for (end = run; end < path.size() && store.pinned(path[end]);) ++end;
    heap_.restart();
    now_ += 2;
    const Block parent = use_all(path.first(run), request.priority);
    stored_ = run;
    if (end == run) return;
    // It is a leaf no more if anything is stored behind it.
    if (parent != kNoBlock && nodes_[parent].children == 0) heap_.remove(parent);
    while (store.capacity() - store.size() < end - run) {
      const Block leaf = heap_.lowest([&](Block last) { return store.pinned(nodes_[last].first); });
      if (leaf == kNoBlock) break;
      leave(leaf, parent, store);
    }
    stored_ += std::min(end - run, store.capacity() - store.size());
    if (stored_ > run)
      add(path.subspan(run, stored_ - run), parent, request.priority);
    else if (parent != kNoBlock && nodes_[parent].children == 0)
      rank(parent);
  }
  void hit(Block, BlockStore&) override {}
  void miss(Block block, BlockStore& store) override {
    if (space_.depths[block] < stored_) store.store(block);
  }
  void look_again() override { heap_.restart(); }
  /// The lowest leaf leaves as a whole, which may be more than one block.
  void evict(BlockStore& store) override {
    const Block leaf = heap_.lowest([&](Block last) { return store.pinned(nodes_[last].first); });
    if (leaf == kNoBlock) bug("every node of a prefix cache is held");
    leave(leaf, kNoBlock, store);
  }

 private:
  /// A node is known by its last block, which it keeps when it is split.
  struct Node : RadixNode {
    Block first = kNoBlock;
    std::uint32_t children = 0;
  };

  void rank(Block last) { heap_.set(last, {value_(nodes_[last]), nodes_[last].used}); }

  /// Uses the nodes of what is resident of a prompt; returns the last one.
  Block use_all(std::span<const Block> run, std::int32_t priority) {
    Block last = kNoBlock;
    for (std::size_t begin = 0; begin < run.size(); begin += nodes_[last].blocks) {
      last = lasts_[run[begin]];
      if (nodes_[last].blocks > run.size() - begin) {
        split(last, run.subspan(begin));
        last = run.back();
      }
      Node& node = nodes_[last];
      node.used = now_ + 1;
      ++node.uses;
      node.priority = std::max(node.priority, priority);
      node.age = age_;
      if (node.children == 0) rank(last);
    }
    return last;
  }
  /// The blocks at the beginning of a node become a node of their own. The rest counts as used as well,
  /// though just before: SGLang looks a node up before it sees that it fits in part.
  void split(Block last, std::span<const Block> begin) {
    Node& rest = nodes_[last];
    Node& front = nodes_[begin.back()];
    front = rest;
    front.blocks = static_cast<std::uint32_t>(begin.size());
    front.children = 1;
    lasts_[front.first] = begin.back();
    rest.blocks -= front.blocks;
    rest.used = now_;
    rest.first = last;
    for (std::uint32_t i = 1; i < rest.blocks; ++i) rest.first = space_.parents[rest.first];
    lasts_[rest.first] = last;
    if (rest.children == 0) rank(last);
  }
  void add(std::span<const Block> blocks, Block parent, std::int32_t priority) {
    Node& node = nodes_[blocks.back()];
    node = {};
    node.used = now_ + 1;
    node.stored = now_;
    node.uses = 1;
    node.blocks = static_cast<std::uint32_t>(blocks.size());
    node.priority = priority;
    node.age = age_;
    node.first = blocks.front();
    lasts_[blocks.front()] = blocks.back();
    if (parent != kNoBlock) ++nodes_[parent].children;
    rank(blocks.back());
  }
  /// `busy`: a node that is going to have a child, and no leaf even if its last one leaves.
  void leave(Block last, Block busy, BlockStore& store) {
    age_ = heap_.key(last).value;
    heap_.remove(last);
    Block block = last;
    for (std::uint32_t i = 0; i < nodes_[last].blocks; ++i) {
      store.evict(block);
      block = space_.parents[block];
    }
    if (block != kNoBlock && --nodes_[block].children == 0 && block != busy) rank(block);
  }

  BlockSpace space_;
  Value value_;
  std::vector<Node> nodes_;   ///< by their last blocks
  std::vector<Block> lasts_;  ///< of a node, by its first block
  BlockHeap heap_;            ///< of leaves
  std::uint64_t now_ = 0;     ///< rises by two with every request
  std::size_t stored_ = 0;    ///< blocks of the present prompt from here on are left out
  double age_ = 0;
};

/// ReplacementRule::make_nodes where the leaf of the lowest such value leaves.
inline auto nodes_by(RadixNodes::Value value) {
  return [value](const auto& /*params*/, const BlockSpace& space) -> std::unique_ptr<Replacement> {
    return std::make_unique<RadixNodes>(space, value);
  };
}

}  // namespace kvsim::policy
