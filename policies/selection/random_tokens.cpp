// A random choice of tokens, anew at every step: a control.
#include "policies/parts/index/reading.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::random_tokens {
namespace {

class RandomSelector final : public Selector {
 public:
  RandomSelector(Amount read, const CacheUnit& unit)
      : read_(read),
        key_(combine({unit.seed, key_of("random_tokens"), static_cast<std::uint64_t>(unit.layer)})),
        first_head_(static_cast<std::size_t>(unit.first_kv_head * unit.group)) {}

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    scores_.resize(tokens.slots());
    for (std::size_t head = 0; head < reads.heads(); ++head) {
      for (std::size_t slot = 0; slot < tokens.slots(); ++slot)
        scores_[slot] = static_cast<float>(
            uniform01(combine({key_, first_head_ + head, static_cast<std::uint64_t>(asking.position),
                               static_cast<std::uint64_t>(tokens.positions()[slot])})));
      highest_scores(scores_, read_.of(tokens.slots()), reads.of(head));
    }
  }

 private:
  Amount read_;
  std::uint64_t key_;
  std::size_t first_head_;
  std::vector<float> scores_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "random_tokens",
      .summary = "reads a random choice of tokens: a control",
      .details =
          "Each query head reads as many of the stored tokens, drawn anew at every step, each as likely as "
          "the others.",
      .params = {read_param("1024"), dense_param(0)},
      .randomised = true,
      .rule = SelectionRule{.reads = reads_by_head, .make = selects<RandomSelector>(read_of)}};
}

}  // namespace kvsim::policy::random_tokens
