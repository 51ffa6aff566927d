// ARC: a list of blocks used once and a list of those used again, whose sizes follow what was evicted too
// early.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::arc {
namespace {

class Arc final : public Replacement {
 public:
  explicit Arc(const BlockSpace& space)
      : links_(space.blocks),
        once_(links_),
        again_(links_),
        once_ghosts_(links_),
        again_ghosts_(links_),
        places_(space.blocks, Place::none),
        capacity_(space.capacity) {}

  void look_again() override {
    once_.restart();
    again_.restart();
  }
  void hit(Block block, BlockStore&) override {
    (places_[block] == Place::once ? once_ : again_).remove(block);
    places_[block] = Place::again;
    again_.push(block);
  }
  void miss(Block block, BlockStore& store) override {
    const Place place = places_[block];
    places_[block] = Place::none;
    if (place == Place::once_ghost || place == Place::again_ghost) {
      adapt(place);
      (place == Place::once_ghost ? once_ghosts_ : again_ghosts_).remove(block);
      if (store.full()) replace(place == Place::again_ghost, store);
      places_[block] = Place::again;
      again_.push(block);
    } else {
      replace_for_new(store);
      places_[block] = Place::once;
      once_.push(block);
    }
    store.store(block);
  }
  void evict(BlockStore& store) override { replace(false, store); }

 private:
  enum class Place : std::uint8_t { none, once, again, once_ghost, again_ghost };

  void adapt(Place place) {
    const double once = static_cast<double>(once_ghosts_.size()),
                 again = static_cast<double>(again_ghosts_.size());
    if (place == Place::once_ghost)
      target_ = std::min(target_ + std::max(again / once, 1.0), static_cast<double>(capacity_));
    else
      target_ = std::max(target_ - std::max(once / again, 1.0), 0.0);
  }

  /// Ghosts give way to a new block although the cache may have room: an engine evicts before it stores.
  void replace_for_new(BlockStore& store) {
    const std::size_t once = once_.size() + once_ghosts_.size();
    const std::size_t known = once + again_.size() + again_ghosts_.size();
    const bool drops = once >= capacity_ && once_ghosts_.empty();
    BlockQueue& ghosts = once >= capacity_ ? once_ghosts_ : again_ghosts_;
    if ((once >= capacity_ || known >= 2 * capacity_) && !ghosts.empty()) places_[ghosts.pop()] = Place::none;
    if (!store.full()) return;
    const Block victim = drops ? once_.candidate(store) : kNoBlock;
    if (victim == kNoBlock) return replace(false, store);
    once_.remove(victim);
    places_[victim] = Place::none;
    store.evict(victim);
  }

  void replace(bool again_ghost, BlockStore& store) {
    const double size = static_cast<double>(once_.size());
    bool of_once = (!once_.empty() && (size > target_ || (again_ghost && size == target_))) || again_.empty();
    Block victim = (of_once ? once_ : again_).candidate(store);
    if (victim == kNoBlock) {
      of_once = !of_once;
      victim = (of_once ? once_ : again_).candidate(store);
    }
    (of_once ? once_ : again_).remove(victim);
    places_[victim] = of_once ? Place::once_ghost : Place::again_ghost;
    (of_once ? once_ghosts_ : again_ghosts_).push(victim);
    store.evict(victim);
  }

  BlockLinks links_;
  BlockQueue once_, again_, once_ghosts_, again_ghosts_;
  std::vector<Place> places_;
  std::size_t capacity_;
  double target_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "arc",
      .summary =
          "two LRU lists, of blocks used once and of those used again; misses on what just left move the "
          "border",
      .paper =
          "Megiddo, Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003, "
          "https://www.usenix.org/conference/fast-03/arc-self-tuning-low-overhead-replacement-cache",
      .details =
          "The paper's T1, T2, B1, B2 and p; p is a real number and moves by the ratio of the ghost lists, "
          "at least 1. Where all of the list that should give way is pinned, the other one does.",
      .departures = {{"the paper's text was not at hand",
                      "the rule is its Figure 4 as others wrote it down; libCacheSim's ARC hits exactly as "
                      "many single blocks"}},
      .rule = ReplacementRule{.make = made<Arc>}};
}

}  // namespace kvsim::policy::arc
