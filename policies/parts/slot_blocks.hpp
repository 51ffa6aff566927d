#pragma once
/// Blocks of consecutive slots, and which of them an index must summarise again because what they hold has
/// changed.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "policies/api/stored_tokens.hpp"

namespace kvsim::policy {

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

}  // namespace kvsim::policy
