// The tokens of the highest logits: what every selection is compared with.
#include "policies/parts/index/reading.hpp"

namespace kvsim::policy::top_tokens {
namespace {

class TopSelector final : public UnitSelector {
 public:
  TopSelector(Amount read, const CacheUnit& unit) : UnitSelector(unit), read_(read) {}

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    for (std::size_t head = 0; head < reads.heads(); ++head) {
      exact_scores(asking, head, tokens, head / group_, scores_);
      highest_scores(scores_, read_.of(tokens.slots()), reads.of(head));
    }
  }

 private:
  Amount read_;
  std::vector<float> scores_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "top_tokens",
      .summary = "reads the tokens of the highest logits: the bound of every selection",
      .details =
          "Each query head computes its logit of every stored token and reads the tokens of the highest. "
          "No attention of as many tokens has more of the full row's mass. It reads all keys to choose, so "
          "it saves nothing: it says what a perfect index would give.",
      .params = {read_param("1024"), dense_param(0)},
      .needs = {.keys = true},
      .rule = SelectionRule{.reads = reads_by_head, .make = selects<TopSelector>(read_of)}};
}

}  // namespace kvsim::policy::top_tokens
