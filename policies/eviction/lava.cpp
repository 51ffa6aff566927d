// Weighs attention from the end of the prompt by the largest value of its head.
#include <algorithm>

#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"
#include "policies/parts/rows/window_rows.hpp"

namespace kvsim::policy::lava {
namespace {

class Lava final : public WindowScored {
 public:
  using WindowScored::WindowScored;

 private:
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out = WindowScored::score(prompt);
    const MatrixView values = prompt.values(0);
    double largest = 0;
    for (std::size_t j = 0; j < values.rows; ++j) largest = std::max(largest, l1_norm(values.row(j)));
    for (double& x : out) x *= largest;
    return out;
  }
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
