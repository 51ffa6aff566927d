// Blocks leave when they were not used for some time.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/block_queue.hpp"

namespace kvsim::policy::ttl {
namespace {

class Ttl final : public QueueReplacement {
 public:
  Ttl(const BlockSpace& space, double seconds)
      : QueueReplacement(space), used_s_(space.blocks, 0), seconds_(seconds) {}

  void advance(double time_s, BlockStore& store) override {
    look_again();
    for (Block block = queue().candidate(store); block != kNoBlock && time_s - used_s_[block] > seconds_;
         block = queue().candidate(store))
      evict(store);
  }
  void start(const RequestView& request, BlockStore&) override { now_s_ = request.time_s; }
  void hit(Block block, BlockStore&) override {
    queue().renew(block);
    used_s_[block] = now_s_;
  }
  void miss(Block block, BlockStore& store) override {
    QueueReplacement::miss(block, store);
    used_s_[block] = now_s_;
  }

 private:
  std::vector<double> used_s_;
  double seconds_, now_s_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "ttl",
      .summary = "blocks leave when they were not used for `seconds`, and before that as under LRU",
      .paper =
          "Anthropic, prompt caching (5 minutes, refreshed by use), "
          "https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching",
      .details =
          "A use begins the time anew. Blocks of running requests do not leave. A full cache evicts the "
          "least recently used block.",
      .departures = {{"Anthropic: five minutes, or an hour where it is asked for",
                      "seconds=3600 for the hour"}},
      .params = {real_param("seconds", "300", {0, 1e9}, "how long a block stays without being used", "s")},
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<Ttl>(space, params.real("seconds"));
      }}};
}

}  // namespace kvsim::policy::ttl
