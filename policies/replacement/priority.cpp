// Evicts blocks of the lowest priority first, the least recently used of them.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_heap.hpp"
#include "policies/parts/blocks/radix_nodes.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::priority {
namespace {

class Priority final : public Replacement {
 public:
  Priority(const BlockSpace& space, bool by_depth, std::uint64_t pin)
      : space_(space), by_depth_(by_depth), pin_(pin), heap_(space.blocks) {}

  bool keeps_for_good() const override { return pin_ > 0; }
  void look_again() override { heap_.restart(); }
  void start(const RequestView& request, BlockStore&) override { now_ = request.priority; }
  void hit(Block block, BlockStore&) override { use(block); }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) {
      if (heap_.candidate(store) == kNoBlock) return;  // Everything else is pinned for good.
      evict(store);
    }
    store.store(block);
    use(block);
  }
  void evict(BlockStore& store) override {
    const Block victim = heap_.candidate(store);
    heap_.remove(victim);
    store.evict(victim);
  }

 private:
  void use(Block block) {
    if (space_.depths[block] < pin_) return;
    heap_.set(block, {by_depth_ ? -static_cast<double>(space_.depths[block]) : now_, clock_++});
  }

  BlockSpace space_;
  bool by_depth_;
  std::uint64_t pin_;
  BlockHeap heap_;
  double now_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "priority",
      .summary =
          "evicts blocks of the lowest priority first, the least recently used of them; the first of a "
          "prompt can be pinned",
      .paper =
          "NVIDIA, TensorRT-LLM, KV cache reuse: priority-based eviction, "
          "https://nvidia.github.io/TensorRT-LLM/advanced/kv-cache-reuse.html; SGLang, "
          "--radix-eviction-policy priority",
      .details =
          "A block has the priority of the last request that used it, or, by=depth, a higher one the nearer "
          "to the beginning of the prompt it is. The first `pin` blocks of every prompt never leave; where "
          "nothing else is left to evict, a new block is not stored.",
      .departures = {{"TensorRT-LLM: priorities of ranges of a prompt's tokens, for a duration",
                      "of whole requests"},
                     {"SGLang: a node keeps the highest priority of its requests", "the last one's"}},
      .params = {choice_param("by", "request", {"request", "depth"}, "what the priority is of"),
                 count_param("pin", "0", {0, 1 << 30}, "so many first blocks of every prompt never leave",
                             "blocks")},
      .rule = ReplacementRule{
          .make =
              [](const Params& params, const BlockSpace& space) {
                return std::make_unique<Priority>(space, params.is("by", "depth"), params.count("pin"));
              },
          .make_nodes = [](const Params& params, const BlockSpace& space) -> std::unique_ptr<Replacement> {
            if (params.is("by", "depth") || params.count("pin") > 0)
              usage_error(
                  "priority ranks and pins single blocks by depth, and nodes of a radix tree by requests",
                  "priority", "Leave out by=depth and pin.");
            return std::make_unique<RadixNodes>(
                space, [](const RadixNode& node) { return static_cast<double>(node.priority); });
          }}};
}

}  // namespace kvsim::policy::priority
