// PyramidInfer's eviction: ranks by the attention of the recent part of the prompt, newer rows counting more.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::pivotal_context {
namespace {

class PivotalContext final : public ScoredEviction {
 public:
  PivotalContext(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        rows_(LastRows::of_share(params.real("recent_rows"))),
        newest_(params.real("newest")),
        sums_(unit.n_query_heads(), rows_) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& block) override {
    const std::size_t n_rows = rows_.in(block.prompt_length), first = block.prompt_length - n_rows;
    const double growth = n_rows > 1 ? (newest_ - 1) / static_cast<double>(n_rows - 1) : 0;
    sums_.fold(block, [=](double sum, double p, std::size_t row) {
      return sum + (1 + growth * static_cast<double>(row - first)) * p;
    });
  }

  /// Rows have weights rising from 1 to `newest`.
  double rows_in_score(std::size_t prompt) const override {
    const std::size_t n_rows = rows_.in(prompt);
    return n_rows > 1 ? static_cast<double>(n_rows) * (1 + newest_) / 2 : 1;
  }

  /// Protects the positions of the recent rows and the one before them, as far as the budget goes.
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    Protection out = rule().protection;
    out.window = std::min(rows_.in(prompt) + 1, budget - std::min(budget, out.sinks));
    return out;
  }

 private:
  std::vector<double> score(const Prompt& /*prompt*/) override { return sums_.mean(); }

  LastRows rows_;
  double newest_;
  ColumnSums sums_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const std::size_t rows = LastRows::of_share(params.real("recent_rows")).in(shape.prompt);
  return scored_cost(params, shape, prompt_scoring(rows, 2 * prompt_sums(shape, rows)));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "pivotal_context",
      .summary =
          "keeps the recent fifth of the prompt and what it attends, newer rows counting more; one set per "
          "layer",
      .paper =
          "Yang, Han, Gao, Hu, Zhang, Zhao, PyramidInfer: Pyramid KV Cache Compression for High-throughput "
          "LLM Inference, Findings of ACL 2024, https://arxiv.org/abs/2405.12532",
      .details =
          "Score: attention from the last n = floor(recent_rows * P) prompt rows, row k of them weighing 1 + "
          "(newest - 1) k / (n - 1), averaged over all query heads of the layer. Sinks stay, and the last n "
          "+ 1 positions as far as the budget goes; the highest scores fill the rest. This is PyramidInfer's "
          "eviction alone: how budgets fall with depth is an allocation. In the original a dropped token is "
          "not computed by deeper layers either; a recorded run has computed it, so replay shows deeper "
          "layers what they would not have seen. Generated tokens are appended.",
      .departures = {{"authors' code: dropped tokens leave the hidden states of deeper layers",
                      "each layer chooses from the whole prompt, by the full run's attention"},
                     {"authors' code: a layer keeps a share of what is before the recent part, all of it up "
                      "to 64 tokens",
                      "a budget, which the recent part may use up"},
                     {"authors' code: generated tokens are pruned by shares too, the prompt no more",
                      "generated tokens are appended"}},
      .params = {real_param("recent_rows", "0.2", {0, 1}, "last rows that rank, whose own positions stay",
                            "share of the prompt"),
                 real_param("newest", "1.2", {0, 1000},
                            "weight of the newest row, the oldest of them weighing 1"),
                 sinks_param(4), unit_param("layer"), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::all},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<PivotalContext>}};
}

}  // namespace kvsim::policy::pivotal_context
