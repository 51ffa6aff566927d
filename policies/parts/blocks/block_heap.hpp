#pragma once
/// A heap of blocks by a key, in arrays: the block of the lowest key leaves first. Keys change in place.
#include <cstddef>
#include <utility>
#include <vector>

#include "policies/api/replacement.hpp"

namespace kvsim::policy {

class BlockHeap {
 public:
  /// Compared one after the other, so that no two blocks are equal.
  struct Key {
    double value = 0;
    std::uint64_t tie = 0;
    bool operator<(const Key& other) const {
      return value != other.value ? value < other.value : tie < other.tie;
    }
  };

  explicit BlockHeap(std::size_t blocks) : keys_(blocks), places_(blocks, kNowhere) {}

  const Key& key(Block block) const { return keys_[block]; }

  /// Puts the block in, or changes its key.
  void set(Block block, Key key) {
    keys_[block] = key;
    if (places_[block] == kNowhere) {
      places_[block] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(block);
    }
    down(up(places_[block]));
  }
  void remove(Block block) {
    const std::size_t place = places_[block];
    const Block last = heap_.back();
    heap_.pop_back();
    places_[block] = kNowhere;
    if (last == block) return;
    heap_[place] = last;
    places_[last] = static_cast<std::uint32_t>(place);
    down(up(place));
  }

  /// Pins changed: those that were put aside are looked at again.
  void restart() {
    for (const Block block : aside_)
      if (places_[block] == kNowhere) set(block, keys_[block]);
    aside_.clear();
  }
  /// The lowest block for which `stays` is false, or kNoBlock. Those before it are put aside until restart()
  /// or set().
  template <class Stays>
  Block lowest(const Stays& stays) {
    while (!heap_.empty() && stays(heap_[0])) {
      aside_.push_back(heap_[0]);
      remove(heap_[0]);
    }
    return heap_.empty() ? kNoBlock : heap_[0];
  }
  Block candidate(const BlockStore& store) {
    return lowest([&](Block block) { return store.pinned(block); });
  }

 private:
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();

  bool before(std::size_t a, std::size_t b) const { return keys_[heap_[a]] < keys_[heap_[b]]; }
  void swap(std::size_t a, std::size_t b) {
    std::swap(heap_[a], heap_[b]);
    places_[heap_[a]] = static_cast<std::uint32_t>(a);
    places_[heap_[b]] = static_cast<std::uint32_t>(b);
  }
  std::size_t up(std::size_t place) {
    for (; place > 0 && before(place, (place - 1) / 2); place = (place - 1) / 2) swap(place, (place - 1) / 2);
    return place;
  }
  void down(std::size_t place) {
    for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && before(child + 1, child)) ++child;
      if (!before(child, place)) return;
      swap(place, child);
      place = child;
    }
  }

  std::vector<Key> keys_;
  std::vector<std::uint32_t> places_;
  std::vector<Block> heap_{}, aside_{};
};

}  // namespace kvsim::policy
