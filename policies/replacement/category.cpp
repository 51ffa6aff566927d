// Evicts the block that its kind of request is least likely to use again soon.
#include <cmath>
#include <utility>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::category {
namespace {

class Category final : public Replacement {
 public:
  Category(const BlockSpace& space, double life)
      : space_(space), links_(space.blocks), of_(space.blocks, 0), used_s_(space.blocks, 0), life_s_(life) {
    queues_.assign(space.categories + 1, BlockQueue(links_));
    known_.resize(space.categories + 1);
  }

  void look_again() override {
    for (BlockQueue& queue : queues_) queue.restart();
  }
  void start(const RequestView& request, BlockStore&) override {
    now_s_ = request.time_s;
    now_ = request.category < space_.categories ? request.category : space_.categories;
  }
  void hit(Block block, BlockStore&) override {
    Known& known = known_[of_[block]];
    ++known.reuses;
    known.gap_s += now_s_ - used_s_[block];
    queues_[of_[block]].remove(block);
    use(block);
  }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    store.store(block);
    use(block);
  }
  void evict(BlockStore& store) override {
    const Block victim = choose(store);
    queues_[of_[victim]].remove(victim);
    store.evict(victim);
  }

 private:
  /// What was seen of the blocks that requests of one category used last.
  struct Known {
    double uses = 0, reuses = 0, gap_s = 0;
  };

  void use(Block block) {
    of_[block] = static_cast<std::uint32_t>(now_);
    used_s_[block] = now_s_;
    ++known_[now_].uses;
    queues_[now_].push(block);
  }
  /// Reuses of a category come after exponential times, if they come: the chance that one comes within the
  /// next `life`.
  double chance(const Known& known, double idle_s) const {
    // One use and one reuse are assumed before any was seen.
    const double share = (known.reuses + 1) / (known.uses + 1);
    const double rate = known.gap_s > 0 ? known.reuses / known.gap_s : 0;
    return rate == 0 ? share : share * std::exp(-rate * idle_s) * -std::expm1(-rate * life_s_);
  }
  Block choose(const BlockStore& store) {
    Block best = kNoBlock;
    double least = 0;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      // Within a category the chance falls with idle time: its oldest block is its least likely one.
      const Block block = queues_[i].candidate(store);
      if (block == kNoBlock) continue;
      const double value = chance(known_[i], now_s_ - used_s_[block]);
      if (best != kNoBlock && std::pair(value, -static_cast<double>(space_.depths[block])) >=
                                  std::pair(least, -static_cast<double>(space_.depths[best])))
        continue;
      best = block;
      least = value;
    }
    return best;
  }

  BlockSpace space_;
  BlockLinks links_;
  std::vector<std::uint32_t> of_;
  std::vector<double> used_s_;
  std::vector<BlockQueue> queues_;
  std::vector<Known> known_;
  double life_s_, now_s_ = 0;
  std::size_t now_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "category",
      .aliases = {"workload_aware"},
      .summary = "evicts the block that requests of its category are least likely to use again soon",
      .paper =
          "Wang, Han, Wei and others, KVCache Cache in the Wild: Characterizing and Optimizing KVCache Cache "
          "at a Large "
          "Cloud Provider, USENIX ATC 2025, https://www.usenix.org/conference/atc25/presentation/wang-jiahao",
      .details =
          "A block belongs to the category of the request that used it last. Of every category the policy "
          "counts how many uses were followed by another and after which mean time; times are taken as "
          "exponential. The chance of a use within the next `life` seconds, given the time since the last "
          "one, is compared among the oldest block of every category; the lowest leaves, the deeper one of "
          "equals. Without categories it is LRU.",
      .departures = {{"the paper's text beyond its abstract was not at hand",
                      "the rule is what its authors wrote beside their code for vLLM, "
                      "https://github.com/vllm-project/vllm/pull/22236, and what summaries tell of times and "
                      "positions"},
                     {"authors: the distribution of each category is measured on earlier traffic",
                      "chances and mean times are counted as the trace goes, from nothing"},
                     {"paper, as summaries tell: the time ahead is a block's expected life in the cache",
                      "the parameter `life`"},
                     {"authors' code: a category is the kind of a request and its turn",
                      "the trace's category alone"}},
      .params = {real_param("life", "600", {0.001, 1e9}, "how far ahead a use counts", "s")},
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<Category>(space, params.real("life"));
      }}};
}

}  // namespace kvsim::policy::category
