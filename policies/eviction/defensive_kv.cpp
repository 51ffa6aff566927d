// Keeps what any recent query needs, rather than what they need on average.
#include <algorithm>
#include <numeric>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"
#include "policies/parts/rows/pooling.hpp"
#include "policies/parts/rows/window_rows.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::defensive_kv {
namespace {

/// Above every other score, which is an attention times a norm as a share of the mean norm.
constexpr double kFirstStage = 1e6;

class DefensiveKv final : public ScoredEviction {
 public:
  DefensiveKv(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        window_(params.count("window")),
        mass_(params.real("mass")),
        pooling_(Pooling::parse(params.word("pool"))),
        rows_(unit.n_query_heads(), window_) {}

  std::size_t prompt_rows() const override { return window_; }
  void observe(const PromptRows& rows) override { rows_.add(rows); }

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out = worst_case();
    const std::vector<double> norms = value_norms(prompt, out.size()), mean = mean_row();
    for (std::size_t j = 0; j < out.size(); ++j) out[j] *= norms[j];
    for (const std::size_t j : first_stage(mean)) out[j] = kFirstStage + mean[j];
    out.resize(prompt.length());
    return out;
  }

  /// The largest pooled attention of any row of any head of the group, at least the mean of these.
  std::vector<double> worst_case() const {
    std::vector<double> out(rows_.older());
    for (std::size_t head = 0; head < rows_.n_heads(); ++head)
      for (std::size_t i = 0; i < rows_.count(); ++i) {
        const std::span<const float> row = rows_.row(head, i);
        const std::vector<double> paid(row.begin(), row.end()), smooth = pooled(pooling_, paid);
        const double before = std::accumulate(paid.begin(), paid.end(), 0.0),
                     after = std::accumulate(smooth.begin(), smooth.end(), 0.0);
        for (std::size_t j = 0; j < out.size(); ++j)
          out[j] = std::max(out[j], after > 0 ? smooth[j] * (before / after) : 0);
      }
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / static_cast<double>(out.size());
    for (double& x : out) x = std::max(x, mean);
    return out;
  }

  /// Of values after the output projection, mean over the group's heads, as shares of the mean over
  /// positions.
  std::vector<double> value_norms(const Prompt& prompt, std::size_t n) const {
    std::vector<double> out(n);
    MatrixView values = prompt.values(0);
    values.rows = n;
    for (int head = 0; head < unit().group; ++head) {
      const std::vector<double> norms = projected_norms(values, prompt.output_weights(head));
      for (std::size_t j = 0; j < n; ++j) out[j] += norms[j] / unit().group;
    }
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / static_cast<double>(n);
    for (double& x : out) x = mean > 0 ? x / mean : 1;
    return out;
  }

  std::vector<double> mean_row() const {
    std::vector<double> out(rows_.older());
    const auto rows = static_cast<double>(rows_.n_heads() * rows_.count());
    for (std::size_t head = 0; head < rows_.n_heads(); ++head)
      for (std::size_t i = 0; i < rows_.count(); ++i)
        for (std::size_t j = 0; j < out.size(); ++j)
          out[j] += static_cast<double>(rows_.row(head, i)[j]) / rows;
    return out;
  }

  /// The fewest positions whose attention, with one more, reaches `mass` less what the last `window`
  /// positions before the window have.
  std::vector<std::size_t> first_stage(const std::vector<double>& mean) const {
    const double all = std::accumulate(mean.begin(), mean.end(), 0.0);
    const std::size_t recent = mean.size() - std::min(window_, mean.size());
    double enough = mass_;
    for (std::size_t j = recent; j < mean.size(); ++j) enough -= mean[j];
    std::vector<std::size_t> order = largest_first(mean);
    std::size_t n = 0;
    double held = 0;
    while (n < order.size() && (held += mean[order[n]] / all) < enough) ++n;
    order.resize(n < order.size() ? n : 0);
    return order;
  }

  std::size_t window_;
  double mass_;
  Pooling pooling_;
  WindowRows rows_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  Scoring scoring = window_scoring(shape, params.count("window"), params.word("pool"));
  scoring.prompt = scoring.prompt + projected_values(shape) + sorted(shape, sets_of(params, shape));
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "defensive_kv",
      .summary = "keeps what any recent query needs, rather than what they need on average",
      .paper = "DefensiveKV, arXiv 2025, https://arxiv.org/abs/2510.13334",
      .details =
          "Positions before the window. Each of the last `window` rows of each query head is pooled and scaled to "
          "its old sum; the largest of all rows and heads counts, at least the mean of these over positions; times "
          "the L1 norm of the value after the output projection, mean over the heads. First of all come the "
          "positions of largest mean attention whose shares stay below `mass`, less what the `window` positions "
          "before the window receive. Heads of a layer compete as adakv(alpha=0) lets them (defensive_kv.heads), in "
          "the layer form all layers do (defensive_kv.layers). Generated tokens are appended.",
      .departures = {{"authors' code: norms as shares of their sum over the layer's KV heads, token by token",
                      "as shares of their mean over the head's positions: a policy sees one head"},
                     {"authors' code: ties of the first stage are broken by the sort", "by mean attention"}},
      .params = {window_param(32, 1), pool_param("pool", "avg:5", "smoothing along positions"),
                 real_param("mass", "0.9", {0, 1}, "of attention that comes first", "share"),
                 ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window, .values = true, .output_weights = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<DefensiveKv>}};
}

}  // namespace kvsim::policy::defensive_kv
