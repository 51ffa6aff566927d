// W-TinyLFU: a small LRU window, and a segmented main part that a block enters only if it is more popular
// than what leaves.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::w_tinylfu {
namespace {

class WTinyLfu final : public Replacement {
 public:
  WTinyLfu(const BlockSpace& space, double window, double safe, std::uint64_t sample)
      : links_(space.blocks),
        window_(links_),
        probation_(links_),
        protected_(links_),
        places_(space.blocks, Place::none),
        uses_(space.blocks, 0),
        most_window_(
            std::max<std::size_t>(static_cast<std::size_t>(window * static_cast<double>(space.capacity)), 1)),
        most_protected_(static_cast<std::size_t>(
            safe * static_cast<double>(space.capacity - std::min(most_window_, space.capacity)))),
        sample_(sample * space.capacity) {}

  void look_again() override {
    window_.restart();
    probation_.restart();
    protected_.restart();
  }
  void hit(Block block, BlockStore&) override {
    count(block);
    if (places_[block] == Place::window) {
      window_.remove(block);
      return window_.push(block);
    }
    (places_[block] == Place::protect ? protected_ : probation_).remove(block);
    places_[block] = Place::protect;
    protected_.push(block);
    if (protected_.size() <= most_protected_) return;
    const Block demoted = protected_.pop();
    places_[demoted] = Place::probation;
    probation_.push(demoted);
  }
  void miss(Block block, BlockStore& store) override {
    count(block);
    if (store.full()) evict(store);
    places_[block] = Place::window;
    store.store(block);
    window_.push(block);
    // The main part has room: before the cache is full, and where it lost a block because all of the window
    // was held.
    while (window_.size() > most_window_) admit(window_.pop());
  }
  void evict(BlockStore& store) override {
    // Blocks of the request itself may leave as well: not to have admitted them is the same.
    const auto held = [&](Block block) { return store.held(block); };
    const Block wants = window_.size() >= most_window_ ? window_.oldest_unless(held) : kNoBlock;
    BlockQueue* part = &probation_;
    Block victim = probation_.candidate(store);
    if (victim == kNoBlock) {
      part = &protected_;
      victim = protected_.candidate(store);
    }
    if (victim == kNoBlock) return leave(window_.oldest_unless(held), window_, store);
    if (wants == kNoBlock) return leave(victim, *part, store);
    if (uses_[wants] <= uses_[victim]) return leave(wants, window_, store);
    leave(victim, *part, store);
    window_.remove(wants);
    admit(wants);
  }

 private:
  enum class Place : std::uint8_t { none, window, probation, protect };

  void count(Block block) {
    uses_[block] = std::min<std::uint8_t>(uses_[block] + 1, 15);
    if (++counted_ < sample_) return;
    for (std::uint8_t& uses : uses_) uses /= 2;
    counted_ /= 2;
  }
  void admit(Block block) {
    places_[block] = Place::probation;
    probation_.push(block);
  }
  void leave(Block block, BlockQueue& queue, BlockStore& store) {
    queue.remove(block);
    places_[block] = Place::none;
    store.evict(block);
  }

  BlockLinks links_;
  BlockQueue window_, probation_, protected_;
  std::vector<Place> places_;
  std::vector<std::uint8_t> uses_;
  std::size_t most_window_, most_protected_;
  std::uint64_t sample_, counted_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "w_tinylfu",
      .aliases = {"tinylfu"},
      .summary =
          "a small LRU window before a segmented LRU, which a block enters if it was used more often "
          "than what leaves",
      .paper =
          "Einziger, Friedman, Manes, TinyLFU: A Highly Efficient Cache Admission Policy, ACM Transactions "
          "on Storage 2017, https://arxiv.org/abs/1512.00727",
      .details =
          "Every use is counted, up to 15; after `sample` times the capacity of them all counts are halved. "
          "The block that the window gives up is compared with the one that the main part gives up; the one "
          "with fewer uses leaves, of equal ones that of the window.",
      .departures =
          {{"the paper's text beyond its abstract was not at hand",
            "the rule and its shares are those of summaries and of libraries after it"},
           {"paper: counts are a sketch, in which blocks can collide, behind a filter of those seen once",
            "one exact count per block"},
           {"Caffeine adapts the window's share to the hits", "it is a parameter"},
           {"libCacheSim counts stores, hits in the main part and what leaves the window, and halves counts "
            "after 32 capacities",
            "every use; sample=32"},
           {"other policies here let no block of a request displace another one of it",
            "a prompt whose blocks were not used before leaves those in the cache for which the window has "
            "room, its first ones"}},
      .params = {share_param("window", "0.01", "the window's share of the capacity"),
                 share_param("protected", "0.8", "share of the main part whose blocks were used there"),
                 count_param("sample", "10", {1, 1 << 20}, "uses after which counts are halved",
                             "capacities")},
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<WTinyLfu>(space, params.share("window"), params.share("protected"),
                                          params.count("sample"));
      }}};
}

}  // namespace kvsim::policy::w_tinylfu
