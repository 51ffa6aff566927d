#pragma once
/// The least and the largest of each key component in blocks of consecutive slots.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/parts/slot_blocks.hpp"

namespace kvsim::policy {

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
