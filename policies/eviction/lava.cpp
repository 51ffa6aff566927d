// Weighs attention from the end of the prompt by the largest value of its head.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_score.hpp"

namespace kvsim::policy::lava {
namespace {

class Lava final : public ScoredEviction {
 public:
  Lava(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        window_(params.count("window")),
        pooling_(Pooling::parse(params.word("pool"))),
        group_(group_of(params)),
        sums_(unit.n_query_heads(), window_) {}

  std::size_t prompt_rows() const override { return window_; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out = window_score(sums_, window_, prompt.length(), pooling_, group_);
    const MatrixView values = prompt.values(0);
    double largest = 0;
    for (std::size_t j = 0; j < values.rows; ++j) {
      double norm = 0;
      for (const float x : values.row(j)) norm += std::abs(static_cast<double>(x));
      largest = std::max(largest, norm);
    }
    for (double& x : out) x *= largest;
    return out;
  }

  std::size_t window_;
  Pooling pooling_;
  Group group_;
  ColumnSums sums_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  Scoring scoring = window_scoring(shape, params.count("window"), params.word("pool"));
  scoring.prompt = scoring.prompt + over_values(shape, shape.prompt, 2);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "lava",
      .summary = "attention from the last prompt rows times the head's largest value, so that heads compare",
      .paper =
          "Shen, Yuan, Zhang, Wang, Jiang, Nguyen, LAVa: Layer-wise KV Cache Eviction with Dynamic Budget "
          "Allocation, arXiv 2025, https://arxiv.org/abs/2509.09754",
      .details =
          "Score of a position before the window: attention from the last `window` rows, averaged over them, "
          "pooled along positions within each query head, the largest of the group's query heads, times the "
          "largest L1 norm of the KV head's values. The factor is the same for all tokens of a head: it "
          "counts where heads or layers compete, as in lava+lava_layers, the whole method. The window itself "
          "stays. Generated tokens are appended.",
      .params = {window_param(32, 1), pool_param("pool", "max:7", "smoothing along positions"),
                 group_param("max"), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window, .values = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Lava>}};
}

}  // namespace kvsim::policy::lava
