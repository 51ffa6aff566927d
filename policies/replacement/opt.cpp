// The best a cache can do that knows all later requests.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_heap.hpp"

namespace kvsim::policy::opt {
namespace {

class Opt final : public Replacement {
 public:
  explicit Opt(const BlockSpace& space) : space_(space), heap_(space.blocks) {}

  bool knows_future() const override { return true; }
  void look_again() override { heap_.restart(); }
  void start(const RequestView& request, BlockStore&) override { next_ = request.next_use; }
  void hit(Block block, BlockStore&) override { heap_.set(block, key(block)); }
  void miss(Block block, BlockStore& store) override {
    const BlockHeap::Key wanted = key(block);
    if (store.full()) {
      // Blocks of the request itself may leave as well: not to have stored them is the same.
      const Block victim = lowest(store);
      if (victim == kNoBlock || !(heap_.key(victim) < wanted)) return;
      evict(store);
    }
    store.store(block);
    heap_.set(block, wanted);
  }
  void evict(BlockStore& store) override {
    const Block victim = lowest(store);
    heap_.remove(victim);
    store.evict(victim);
  }

 private:
  Block lowest(const BlockStore& store) {
    return heap_.lowest([&](Block other) { return store.held(other); });
  }
  /// Ordered by what leaves first: the farthest next use, of equal ones the deepest.
  BlockHeap::Key key(Block block) const {
    const std::uint32_t depth = space_.depths[block];
    return {-static_cast<double>(next_[depth]), (std::uint64_t{kNever - depth} << 32) | block};
  }

  BlockSpace space_;
  BlockHeap heap_;
  std::span<const std::uint32_t> next_{};
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "opt",
      .aliases = {"belady"},
      .summary =
          "knows the future: keeps the blocks that prompts need soonest, and leaves out what is needed later "
          "than those",
      .paper =
          "Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal "
          "1966",
      .details =
          "Evicts the block whose next prompt is farthest, the deepest of equal ones, and does not store a "
          "block that would be that one. A block is never needed before those in front of it, so that what "
          "is resident is always leading runs, and no other policy has more leading-run blocks at the same "
          "capacity. Of tokens another order may hit more where the last blocks of prompts count fewer.",
      .departures =
          {{"the paper's text was not at hand",
            "the rule is the one that bears its name; tests try every order of evictions beside it"},
           {"Belady: every page is stored", "blocks may be left out, as caches of prompts may"}},
      .rule = ReplacementRule{.make = made<Opt>}};
}

}  // namespace kvsim::policy::opt
