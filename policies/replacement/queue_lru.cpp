// LRU for which a block is used when a waiting request needs it, and not only when one runs.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::queue_lru {
namespace {

class QueueLru final : public QueueReplacement {
 public:
  QueueLru(const BlockSpace& space, std::uint64_t window) : QueueReplacement(space), window_(window) {}

  std::size_t lookahead() const override { return window_; }
  void start(const RequestView& request, BlockStore& store) override {
    const std::size_t seen = std::min<std::size_t>(request.waiting.size(), window_);
    for (std::size_t i = seen; i-- > 0;)
      for (std::size_t k = request.waiting[i].size(); k-- > 0;)
        if (const Block block = request.waiting[i][k]; store.known(block)) queue().renew(block);
  }
  void hit(Block block, BlockStore&) override { queue().renew(block); }

 private:
  std::uint64_t window_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "queue_lru",
      .summary =
          "knows the next requests: LRU that spares what those that wait need, the first in the queue "
          "longest",
      .paper =
          "vLLM, Waiting-Queue-Informed LRU for Prefix Cache Eviction, proposal of 2026, "
          "https://github.com/vllm-project/vllm/issues/48485",
      .details =
          "When a request starts, the resident blocks of the `window` requests that wait behind it become "
          "the newest, the next one's last.",
      .departures = {{"proposal, of which the beginning was at hand: looks at the queue when a block is to "
                      "leave",
                      "when a request starts"},
                     {"proposal: as many waiting requests as may run at once", "the parameter `window`"},
                     {"an engine's queue",
                      "a replay in which requests take no time has none: the next `window` requests of the "
                      "trace count as waiting"}},
      .params = {count_param("window", "16", {0, 1 << 20}, "how many waiting requests it looks at",
                             "requests")},
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<QueueLru>(space, params.count("window"));
      }}};
}

}  // namespace kvsim::policy::queue_lru
