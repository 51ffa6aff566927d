// EMS's merging: of what the prompt loses the better part is merged, and the rest is dropped.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/merging/merging.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::ems_merge {
namespace {

MergeRule rule(const Params& params) {
  MergeRule out;
  out.nearest = MergeRule::Nearest::product;
  out.gate = MergeRule::Gate::lane;
  out.tau = params.real("tau");
  out.weights = params.is("weights", "score") ? MergeRule::Weights::score : MergeRule::Weights::equal;
  out.candidates = params.real("candidates");
  out.decode = false;
  return out;
}

class EmsMerge final : public Representation {
 public:
  EmsMerge(const MergeRule& rule, std::size_t window, const CacheUnit& unit)
      : rule_(rule),
        window_(window),
        unit_(unit),
        all_(unit.n_query_heads(), kAllRows),
        last_(unit.n_query_heads(), window) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override {
    all_.add(rows);
    last_.add(rows);
  }
  std::size_t rows_beside_columns() const override { return window_; }
  void observe_columns(const PromptColumns& columns) override { all_.take(columns.query_head, columns.sum); }

  void finish_prompt(const Prompt& prompt) override {
    const auto group = static_cast<std::size_t>(unit_.group);
    scores_.assign(static_cast<std::size_t>(unit_.n_lanes), std::vector<double>(prompt.length()));
    // A row adds up to 1, so that the means of both are as their numbers of rows.
    const double scale =
        static_cast<double>(prompt.length()) / static_cast<double>(std::min(window_, prompt.length()));
    for (std::size_t head = 0; head < all_.n_heads(); ++head)
      for (std::size_t j = 0; j < prompt.length(); ++j)
        scores_[head / group][j] += std::max(all_.head(head)[j], scale * last_.head(head)[j]);
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<MergingCodec>(rule_, &scores_); }

 private:
  MergeRule rule_;
  std::size_t window_;
  CacheUnit unit_;
  ColumnSums all_, last_;
  std::vector<std::vector<double>> scores_{};  ///< [lanes][prompt]
};

}  // namespace

PolicySpec spec() {
  return merging_spec(
      {.name = "ems_merge",
       .summary =
           "what is cut from the prompt is dropped or, the better part of it, merged into what is like "
           "it in key and value",
       .paper = "Li, Li, Meng, Ma, Geng, Xia, Wang, EMS: Adaptive Evict-then-Merge Strategy for Head-wise KV "
                "Cache Compression Based on Global-Local Importance, arXiv 2024, "
                "https://arxiv.org/abs/2412.08521",
       .details =
           "Once, when the prompt is cut, in each KV head: what stays are centres. Of what leaves, the "
           "tokens with the best scores are candidates, and all others are dropped. A candidate joins the "
           "centre with the largest product of the cosines of keys and values among those whose keys have a "
           "positive cosine, or is dropped where that product is below tau. Keys and values become means, "
           "weighted by the scores. A score is the larger of two sums of attention, over all rows and over "
           "the last ones, the second scaled to the mean of the first, summed over the query heads of the KV "
           "head. What a later eviction drops is lost. Merged numbers are not rounded to the format of the "
           "trace.",
       .departures =
           {{"EMS: no released code is known to us; the three classes, the product of cosines and the centre "
             "of zeros that takes what is below tau follow the abstract and what others write about it",
             "tau, the number of candidates, the window, the larger of both scores and the weights are ours"},
            {"EMS: the product of two negative cosines is positive", "keys must have a positive cosine"},
            {"EMS: its own scores choose the centres",
             "only the merging is here; which tokens stay is the eviction's, such as ems_like"}},
       .params = {real_param("tau", "0.6", {-1, 2},
                             "the least product of cosines of a merge; above 1 nothing is merged"),
                  real_param(
                      "candidates", "4", {1, 1e6},
                      "times the number of tokens that stay: so many stay or are candidates; 1: none is"),
                  count_param("window", "32", {1, 1 << 20},
                              "the last rows of the prompt, whose attention counts as much as that of all",
                              "rows"),
                  choice_param("weights", "score", {"score", "equal"}, "of the means"), mass_param(),
                  target_param()},
       .needs = {.prompt_rows = RowNeed::all}},
      rule,
      [](const Params& params, const CacheUnit& unit,
         const MergeRule& whole) -> std::unique_ptr<Representation> {
        return std::make_unique<EmsMerge>(whole, params.count("window"), unit);
      });
}

}  // namespace kvsim::policy::ems_merge
