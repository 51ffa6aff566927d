// Ranks by the largest attention of a group's heads, row by row.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"

namespace kvsim::policy::group_peaks {
namespace {

class GroupPeaks final : public ScoredEviction {
 public:
  GroupPeaks(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), rows_(unit.n_query_heads(), params.count("window")) {}

  std::size_t prompt_rows() const override { return rows_.window(); }
  void observe(const PromptRows& rows) override { rows_.add(rows); }

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    for (std::size_t i = 0; i < rows_.count(); ++i)
      for (std::size_t j = 0; j < rows_.older(); ++j) {
        float most = 0;
        for (std::size_t head = 0; head < rows_.n_heads(); ++head)
          most = std::max(most, rows_.row(head, i)[j]);
        out[j] += static_cast<double>(most) / static_cast<double>(rows_.count());
      }
    return out;
  }

  WindowRows rows_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "group_peaks",
      .summary = "keeps what any of the group's query heads attends, row by row: G-KV's score",
      .paper = "G-KV, arXiv 2025, https://arxiv.org/abs/2512.00504",
      .details =
          "Score of a position before the window: in each of the last `window` rows the largest attention of the "
          "group's query heads, mean over the rows. snapkv(pool=none,group=max) takes the mean first. Generated "
          "tokens are appended; g_kv cuts them, too.",
      .params = {window_param(16, 1), sinks_param(0), granularity_param(), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window},
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape, window_scoring(shape, params.count("window"), "none"));
          },
      .rule = EvictionRule{.scored = true, .make = made<GroupPeaks>}};
}

}  // namespace kvsim::policy::group_peaks
