#pragma once
/// The least and the largest of each key component in blocks of consecutive slots.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "policies/api/representation.hpp"

namespace kvsim::policy {

/// Blocks of consecutive slots, and which of them an index must summarise again because what they hold has
/// changed.
class SlotBlocks {
 public:
  /// The first `first` slots belong to no block; the last block may be shorter than `size`.
  explicit SlotBlocks(std::size_t size, std::size_t first = 0) : size_(size), first_(first) {}

  std::size_t size() const { return size_; }
  std::size_t count(std::size_t slots) const {
    return slots <= first_ ? 0 : (slots - first_ + size_ - 1) / size_;
  }
  /// Slots [first, second) of a block.
  std::pair<std::size_t, std::size_t> of(std::size_t block, std::size_t slots) const {
    const std::size_t begin = first_ + block * size_;
    return {begin, std::min(begin + size_, slots)};
  }

  /// Calls summarise(block, first_slot, end_slot) for every block.
  template <class Summarise>
  void all(std::size_t slots, Summarise summarise) const {
    from(0, slots, summarise);
  }
  /// The same for the blocks whose tokens Selector::joined() says may have changed.
  template <class Summarise>
  void changed(std::size_t own_slot, std::size_t moved_from, std::size_t slots, Summarise summarise) const {
    const std::size_t moved = moved_from < slots ? block_of(moved_from) : count(slots);
    from(moved, slots, summarise);
    if (own_slot >= first_ && block_of(own_slot) < moved) {
      const auto [begin, end] = of(block_of(own_slot), slots);
      summarise(block_of(own_slot), begin, end);
    }
  }

 private:
  std::size_t block_of(std::size_t slot) const { return slot <= first_ ? 0 : (slot - first_) / size_; }
  template <class Summarise>
  void from(std::size_t block, std::size_t slots, Summarise summarise) const {
    for (; block < count(slots); ++block) {
      const auto [begin, end] = of(block, slots);
      summarise(block, begin, end);
    }
  }

  std::size_t size_, first_;
};

class SlotBounds {
 public:
  SlotBounds(std::size_t block, std::size_t lanes, std::size_t dim)
      : blocks_(block), dim_(dim), bounds_(lanes) {}

  const SlotBlocks& blocks() const { return blocks_; }
  /// Selector::begin() and Selector::joined().
  void begin(const StoredTokens& tokens) {
    resize(tokens.slots());
    blocks_.all(tokens.slots(), [&](std::size_t block, std::size_t first, std::size_t end) {
      bound(block, first, end, tokens);
    });
  }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) {
    resize(tokens.slots());
    blocks_.changed(
        own_slot, moved_from, tokens.slots(),
        [&](std::size_t block, std::size_t first, std::size_t end) { bound(block, first, end, tokens); });
  }

  /// Per component, [dim].
  const float* least(std::size_t lane, std::size_t block) const {
    return bounds_[lane].data() + block * 2 * dim_;
  }
  const float* largest(std::size_t lane, std::size_t block) const { return least(lane, block) + dim_; }
  /// As 16-bit floats, of all lanes.
  std::uint64_t bits() const {
    std::uint64_t numbers = 0;
    for (const std::vector<float>& lane : bounds_) numbers += lane.size();
    return 16 * numbers;
  }

 private:
  void resize(std::size_t slots) {
    for (std::vector<float>& lane : bounds_) lane.resize(blocks_.count(slots) * 2 * dim_);
  }

  void bound(std::size_t block, std::size_t first, std::size_t end, const StoredTokens& tokens) {
    for (std::size_t lane = 0; lane < bounds_.size(); ++lane) {
      float* least = bounds_[lane].data() + block * 2 * dim_;
      float* largest = least + dim_;
      std::ranges::copy(tokens.key(lane, first), least);
      std::ranges::copy(tokens.key(lane, first), largest);
      for (std::size_t slot = first + 1; slot < end; ++slot) {
        const std::span<const float> key = tokens.key(lane, slot);
        for (std::size_t c = 0; c < dim_; ++c) {
          least[c] = std::min(least[c], key[c]);
          largest[c] = std::max(largest[c], key[c]);
        }
      }
    }
  }

  SlotBlocks blocks_;
  std::size_t dim_;
  std::vector<std::vector<float>> bounds_;  ///< per lane [blocks][2][dim]
};

}  // namespace kvsim::policy
