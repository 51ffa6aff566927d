// Keeps tokens that differ from the tokens that follow them.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::lagkv {
namespace {

/// Returns the sample standard deviation over channels of (x - least) / (most - least); a channel without
/// spread counts 0.
double spread(std::span<const float> row, std::span<const float> least, std::span<const float> most) {
  const std::size_t dim = row.size();
  std::vector<double> scaled(dim);
  double mean = 0;
  for (std::size_t c = 0; c < dim; ++c) {
    const double range = static_cast<double>(most[c]) - static_cast<double>(least[c]);
    if (range > 0) scaled[c] = (static_cast<double>(row[c]) - static_cast<double>(least[c])) / range;
    mean += scaled[c] / static_cast<double>(dim);
  }
  double squares = 0;
  for (const double x : scaled) squares += (x - mean) * (x - mean);
  return dim < 2 ? 0 : std::sqrt(squares / static_cast<double>(dim - 1));
}

/// Adds half of a softmax over rows [first, first + lag) to `scores`: the softmax of their spread relative to
/// the lag rows that follow.
void add_lag(const MatrixView& rows, std::size_t first, std::size_t lag, std::span<double> scores) {
  const auto reference = rows.row(first + lag);
  std::vector<float> least(reference.begin(), reference.end()), most = least;
  for (std::size_t i = first + lag + 1; i < first + 2 * lag; ++i)
    for (std::size_t c = 0; c < rows.cols; ++c) {
      least[c] = std::min(least[c], rows(i, c));
      most[c] = std::max(most[c], rows(i, c));
    }
  std::vector<double> weights(lag);
  for (std::size_t i = 0; i < lag; ++i) weights[i] = spread(rows.row(first + i), least, most);
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (std::size_t i = 0; i < lag; ++i) scores[i] += weights[i] / sum / 2;
}

/// Replaces each score by its rank, lowest first, as a share of their number; of equals the first ranks
/// lower.
void rank_shares(std::span<double> scores) {
  const std::vector<std::size_t> order = least_first(scores);
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    scores[order[rank]] = static_cast<double>(rank) / static_cast<double>(order.size());
}

class LagKv final : public ScoredEviction {
 public:
  LagKv(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        sinks_(params.count("sinks")),
        lag_(params.count("lag")),
        across_(params.flag("across")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t length = prompt.length(), sinks = prompt.sinks(sinks_);
    std::vector<double> out(length, 1.0);
    if (length < sinks + 2 * lag_) {
      for (std::size_t j = sinks; j < length; ++j)
        out[j] = static_cast<double>(j - sinks) / static_cast<double>(length - sinks);
      return out;
    }
    const std::size_t lags = (length - sinks) / lag_;
    for (std::size_t p = 0; p + 1 < lags; ++p) {
      const std::size_t first = sinks + p * lag_;
      const std::span<double> scores = std::span(out).subspan(first, lag_);
      std::fill(scores.begin(), scores.end(), 0.0);
      add_lag(prompt.keys(0), first, lag_, scores);
      add_lag(prompt.values(0), first, lag_, scores);
      if (!across_) rank_shares(scores);
    }
    return out;
  }

  std::size_t sinks_, lag_;
  bool across_;
};

/// Counts, per component, least, largest, scaling (2) and a standard deviation (3); then ranks within each
/// lag.
Cost cost_of(const Params& params, const CostShape& shape) {
  Work scores = over_keys(shape, shape.prompt, 7) + over_values(shape, shape.prompt, 7);
  if (!params.flag("across"))
    scores.ops += real(shape.kv_heads) * real(shape.prompt) * std::log2(real(params.count("lag")));
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "lagkv",
      .summary = "keeps, of every stretch of the prompt, what stands out against the stretch that follows",
      .paper =
          "Liang, Zhang, Li, Li, LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are "
          "Important, arXiv 2025, https://arxiv.org/abs/2504.04704",
      .details =
          "Behind the sinks the prompt is cut into lags. Every channel of a lag's keys is scaled by the "
          "least and the largest value it takes in the next lag; a token's spread is the standard deviation "
          "over its scaled channels, and its score the softmax of that over the lag, averaged with the same "
          "of its value. Scores are replaced by ranks within the lag, so that every lag keeps the same "
          "share; the last whole lag and what follows it score 1. A prompt of less than two lags behind the "
          "sinks keeps its newest, and so does a budget below the tokens that score 1, the sinks first "
          "(tie=newest: its oldest). Generated tokens are appended.",
      .departures = {{"kvpress: a channel without spread in the next lag makes scores that are not numbers",
                      "such a channel counts 0"}},
      .params = {count_param("lag", "128", {1, 1 << 20}, "length of a stretch", "tokens"),
                 flag_param("across", "false",
                            "scores of different lags compete as they are, not by rank within their lag"),
                 sinks_param(4), granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .values = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<LagKv>}};
}

}  // namespace kvsim::policy::lagkv
