// S3-FIFO: a small queue that most blocks leave soon, a main queue, and a queue of names of what left the
// small one.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::s3_fifo {
namespace {

class S3Fifo final : public Replacement {
 public:
  S3Fifo(const BlockSpace& space, double small, double ghost, std::uint64_t promote, bool fills_main)
      : links_(space.blocks),
        small_(links_),
        main_(links_),
        ghosts_(links_),
        places_(space.blocks, Place::none),
        uses_(space.blocks, 0),
        most_small_(
            std::max<std::size_t>(static_cast<std::size_t>(static_cast<double>(space.capacity) * small), 1)),
        most_ghosts_(static_cast<std::size_t>(static_cast<double>(space.capacity) * ghost)),
        promote_(static_cast<std::uint8_t>(promote)),
        fills_main_(fills_main) {}

  void look_again() override {
    small_.restart();
    main_.restart();
  }
  void hit(Block block, BlockStore&) override { uses_[block] = std::min<std::uint8_t>(uses_[block] + 1, 3); }
  void miss(Block block, BlockStore& store) override {
    bool known = places_[block] == Place::ghost;
    if (known) ghosts_.remove(block);
    if (store.full()) fills_main_ = false;
    if (fills_main_ && small_.size() >= most_small_) known = true;
    places_[block] = Place::none;
    while (store.full()) make_room(store);
    uses_[block] = 0;
    places_[block] = known ? Place::main : Place::small;
    (known ? main_ : small_).push(block);
    store.store(block);
  }
  void evict(BlockStore& store) override {
    fills_main_ = false;
    const std::size_t before = store.size();
    while (store.size() == before) make_room(store);
  }

 private:
  enum class Place : std::uint8_t { none, small, main, ghost };

  void make_room(BlockStore& store) {
    const bool prefers_small = small_.size() >= most_small_;
    if (prefers_small ? leave_small(store) || leave_main(store) : leave_main(store) || leave_small(store))
      return;
  }

  /// Returns false when all of the small queue is pinned. True: a block has left the cache, or the small
  /// queue.
  bool leave_small(BlockStore& store) {
    for (Block block = small_.candidate(store); block != kNoBlock; block = small_.candidate(store)) {
      small_.remove(block);
      if (uses_[block] >= promote_) {
        uses_[block] = 0;
        places_[block] = Place::main;
        main_.push(block);
        continue;
      }
      store.evict(block);
      remember(block);
      return true;
    }
    return false;
  }

  bool leave_main(BlockStore& store) {
    for (Block block = main_.candidate(store); block != kNoBlock; block = main_.candidate(store)) {
      main_.remove(block);
      if (uses_[block] > 0) {
        --uses_[block];
        main_.push(block);
        continue;
      }
      places_[block] = Place::none;
      store.evict(block);
      return true;
    }
    return false;
  }

  void remember(Block block) {
    places_[block] = Place::none;
    if (most_ghosts_ == 0) return;
    if (ghosts_.size() >= most_ghosts_) places_[ghosts_.pop()] = Place::none;
    places_[block] = Place::ghost;
    ghosts_.push(block);
  }

  BlockLinks links_;
  BlockQueue small_, main_, ghosts_;
  std::vector<Place> places_;
  std::vector<std::uint8_t> uses_;
  std::size_t most_small_, most_ghosts_;
  std::uint8_t promote_;
  bool fills_main_;  ///< until the cache is full
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "s3_fifo",
      .summary =
          "three queues: new blocks leave a small one soon unless they are used, used ones circle in a "
          "main one",
      .paper =
          "Yang, Zhang, Qiu, Yue, Rashmi, FIFO queues are all you need for cache eviction, SOSP 2023, "
          "https://dl.acm.org/doi/10.1145/3600006.3613147",
      .details =
          "A block enters the small queue, or the main one when its name is still in the queue of those that "
          "left the small one. At the small queue's end it goes to the main one if it was used `promote` "
          "times, which clears its count, and otherwise leaves. At the main queue's end a block of count c > "
          "0 goes round with c - 1, at most 3 being counted. The small queue gives way while it has its "
          "share.",
      .departures =
          {{"the paper's text beyond its abstract was not at hand",
            "the rule and its shares are its authors', in libCacheSim and on https://s3fifo.com"},
           {"the hits of libCacheSim's Python package 0.3.5 are those of a rule in which, before the first "
            "eviction, new objects enter the main queue once the small one has its share",
            "fill=main"},
           {"libCacheSim refuses new objects where the small queue has room for fewer than two",
            "the small queue has at least one block"}},
      .params =
          {share_param("small", "0.1", "share of the capacity that the small queue has"),
           share_param("ghost", "0.9",
                       "names of blocks that left the small queue, as a share of the capacity"),
           count_param("promote", "2", {1, 3}, "uses in the small queue that take a block to the main one",
                       "uses"),
           choice_param(
               "fill", "small", {"small", "main"},
               "which queue takes new blocks before the cache is full for the first time; main: once the "
               "small one has its share")},
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<S3Fifo>(space, params.share("small"), params.share("ghost"),
                                        params.count("promote"), params.is("fill", "main"));
      }}};
}

}  // namespace kvsim::policy::s3_fifo
