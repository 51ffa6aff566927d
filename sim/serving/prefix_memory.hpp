#pragma once
/// Paged memory in which blocks of prompts are shared by running sequences and stay for later ones.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/prefix/prefix_tree.hpp"
#include "sim/serving/allocators/allocator.hpp"

namespace kvsim::serving {

/// Whole blocks of the trace alone are shared. A block that a sequence has computed becomes a node of the
/// tree; if another one has computed the same meanwhile, the copy is free again. The nodes that running
/// sequences have are pinned; the others are evicted when memory is short, the one longest unused first, and
/// of a sequence that leaves the last block first.
class PrefixMemory final : public Allocator {
 public:
  PrefixMemory(const prefix::PrefixTree& tree, std::uint64_t capacity, std::uint32_t block,
               std::uint32_t places);

  /// Tokens of a prompt that are there from its beginning on, in whole blocks, at most `most`.
  std::uint64_t found(std::size_t request, std::uint64_t most) const;
  /// Allocator::enter for a sequence that begins with those tokens: returns how many they are, or nothing
  /// where there is no room for `tokens` tokens.
  std::optional<std::uint64_t> enter_behind(Place place, std::size_t request, std::uint64_t most,
                                            std::uint64_t tokens);
  /// Says that the first `tokens` tokens of the sequence are there, all of them of the prompt.
  void computed(Place place, std::size_t request, std::uint64_t tokens);
  /// Says the same of prompt and generated tokens whose blocks the trace knows.
  void ended(Place place, std::size_t request, std::uint64_t tokens);

  std::uint64_t longest() const override { return blocks_ * block_; }
  /// Every block is taken as lying alone.
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override;
  MemoryUse use() const override;

 protected:
  bool reserve(Place place, std::uint64_t tokens) override { return extend(place, tokens); }
  bool extend(Place place, std::uint64_t tokens) override;
  void release(Place place) override;

 private:
  using Node = prefix::Node;

  /// Neighbours in the list of nodes that nobody pins, oldest first; one more entry than nodes is its head.
  struct Link {
    Node before = 0, after = 0;
  };

  std::uint64_t blocks_of(std::uint64_t tokens) const { return tokens / block_ + (tokens % block_ != 0); }
  bool resident(Node node) const { return resident_[node] != 0; }
  void share(Place place, std::span<const Node> path, std::uint64_t blocks);
  void pin(Node node);
  void unpin(Node node);
  void unlink(Node node);
  void evict_oldest();
  std::uint64_t free_blocks() const { return blocks_ - private_blocks_ - resident_blocks_; }

  const prefix::PrefixTree& tree_;
  const std::uint64_t block_, blocks_;
  std::vector<std::uint8_t> resident_;
  std::vector<std::uint32_t> pins_;
  std::vector<Link> links_;
  std::vector<std::vector<Node>> shared_;  ///< by place: its leading blocks
  std::vector<std::uint64_t> private_;     ///< by place: blocks behind these
  std::uint64_t private_blocks_ = 0, resident_blocks_ = 0, pinned_blocks_ = 0, all_pins_ = 0;
};

}  // namespace kvsim::serving
