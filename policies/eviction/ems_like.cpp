// Ranks by the larger of two scores: attention of all rows and of the last rows.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::ems_like {
namespace {

class EmsLike final : public ScoredEviction {
 public:
  EmsLike(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        window_(params.count("window")),
        all_(unit.n_query_heads(), kAllRows),
        last_(unit.n_query_heads(), window_) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override {
    all_.add(rows);
    last_.add(rows);
  }
  std::size_t rows_beside_columns() const override { return window_; }
  void observe_columns(const PromptColumns& columns) override { all_.take(columns.query_head, columns.sum); }

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    const std::size_t n_scored = prompt.length() - std::min(window_, prompt.length());
    std::vector<double> global(n_scored);
    for (std::size_t head = 0; head < all_.n_heads(); ++head) {
      const std::span<const double> local = last_.head(head).first(n_scored);
      for (std::size_t j = 0; j < n_scored; ++j)
        if (const std::size_t rows = unit().seen_by(j, kAllRows, prompt.length()); rows > 0)
          global[j] = all_.head(head)[j] / static_cast<double>(rows);
      const double scale = largest(local) > 0 ? largest(global) / largest(local) : 0;
      for (std::size_t j = 0; j < n_scored; ++j) out[j] += std::max(global[j], scale * local[j]);
    }
    for (double& score : out) score /= static_cast<double>(all_.n_heads());
    return out;
  }

  static double largest(std::span<const double> values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  }

  std::size_t window_;
  ColumnSums all_, last_;
};

/// Counts two sums of attention per position and query head, scaled and compared.
Cost cost_of(const Params& params, const CostShape& shape) {
  Scoring scoring = prompt_scoring(kAllRows, prompt_sums(shape, kAllRows));
  scoring.prompt = scoring.prompt + prompt_sums(shape, params.count("window"));
  scoring.prompt.ops += 4 * real(shape.query_heads) * real(shape.prompt);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "ems_like",
      .summary = "keeps what either all prompt rows or the last ones attend most: ours, in the spirit of EMS",
      .details =
          "Not a published rule. EMS (Adaptive Evict-then-Merge Strategy for Head-wise KV Cache "
          "Compression Based on Global-Local Importance) combines global and local attention, but how is "
          "not public. Here, per query head: mean attention over the rows that see a position, and mean "
          "attention over the last `window` rows, scaled so that both have the same maximum; the score is "
          "the larger, averaged over the unit's query heads. The window stays, generated tokens are "
          "appended, nothing is merged.",
      .departures = {{"EMS: evicts, then merges, by a formula that is not public",
                      "our own combination of the two scores; results are not EMS's"}},
      .params = {window_param(32, 1), unit_param("lane"), sinks_param(0), granularity_param(),
                 ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::all},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<EmsLike>}};
}

}  // namespace kvsim::policy::ems_like
