// Segmented LRU: blocks that were used again are protected from those that were used once.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"

namespace kvsim::policy::slru {
namespace {

class Slru final : public Replacement {
 public:
  Slru(const BlockSpace& space, double share)
      : links_(space.blocks),
        probation_(links_),
        protected_(links_),
        safe_(space.blocks, false),
        most_(std::max<std::size_t>(static_cast<std::size_t>(share * static_cast<double>(space.capacity)),
                                    1)) {}

  void look_again() override {
    probation_.restart();
    protected_.restart();
  }
  void hit(Block block, BlockStore&) override {
    (safe_[block] ? protected_ : probation_).remove(block);
    safe_[block] = true;
    protected_.push(block);
    if (protected_.size() <= most_) return;
    const Block demoted = protected_.pop();
    safe_[demoted] = false;
    probation_.push(demoted);
  }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    safe_[block] = false;
    store.store(block);
    probation_.push(block);
  }
  void evict(BlockStore& store) override {
    const bool on_probation = probation_.candidate(store) != kNoBlock;
    (on_probation ? probation_ : protected_).evict_candidate(store);
  }

 private:
  BlockLinks links_;
  BlockQueue probation_, protected_;
  std::vector<bool> safe_;
  std::size_t most_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "slru",
      .summary = "LRU in two segments: blocks that were used again give way only to others that were",
      .paper =
          "Karedla, Love, Wherry, Caching strategies to improve disk system performance, IEEE Computer 1994",
      .details =
          "New blocks stand in the probationary segment; a hit moves a block to the newest end of the "
          "protected one, whose oldest falls back to the newest end of the probationary one. The oldest "
          "probationary block leaves, and a protected one where running requests hold all others.",
      .departures = {{"the paper's text beyond its abstract was not at hand",
                      "the rule is what Wikipedia quotes of it, which leaves the share open"},
                     {"SGLang: a node is protected from its second use on, and the segment has no limit",
                      "a share of the capacity, as in the paper"}},
      .params = {share_param("protected", "0.8",
                             "share of the capacity that the protected segment takes at most")},
      .rule = ReplacementRule{
          .make =
              [](const Params& params, const BlockSpace& space) {
                return std::make_unique<Slru>(space, params.share("protected"));
              },
          .make_nodes = nodes_by([](const RadixNode& node) { return node.uses < 2 ? 0.0 : 1.0; })}};
}

}  // namespace kvsim::policy::slru
