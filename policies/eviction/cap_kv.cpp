// Keeps values that fill directions which few others fill, where queries are expected to look.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/compactor_scores.hpp"
#include "policies/parts/rows/expected_queries.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::cap_kv {
namespace {

constexpr double kLeastWeight = 1e-6;  ///< added to each weight, as kvpress does

class CapKv final : public ScoredEviction {
 public:
  CapKv(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), future_(params.count("future")), tau_(params.real("tau")) {}

 private:
  /// Sinks are protected, take no part and need no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    const std::size_t sinks = prompt.sinks(rule().protection.sinks), n = prompt.length() - sinks;
    if (n == 0) return out;
    const MatrixView values = prompt.values(0);
    std::vector<double> scaled(n * values.cols);
    for (int head = 0; head < unit().group; ++head) {
      const std::vector<double> weights = relevance(prompt, head, sinks);
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t c = 0; c < values.cols; ++c)
          scaled[j * values.cols + c] =
              std::sqrt(weights[j] + kLeastWeight) * static_cast<double>(values(sinks + j, c));
      const std::vector<double> leverage = leverages(scaled, values.cols, 1);
      for (std::size_t j = 0; j < n; ++j)
        out[sinks + j] += weights[j] / (weights[j] + kLeastWeight) * leverage[j] / unit().group;
    }
    return out;
  }

  /// exp(tau times the cosine of key and expected query), 1 for the largest.
  std::vector<double> relevance(const Prompt& prompt, int head, std::size_t sinks) const {
    const ExpectedQueries queries(prompt.queries(head), sinks, prompt.first(), prompt.rotary(), future_,
                                  false);
    const MatrixView keys = prompt.keys(0);
    double length = 0;
    for (const double x : queries.mean()) length += x * x;
    std::vector<double> out;
    for (std::size_t j = sinks; j < keys.rows; ++j) {
      const double both = std::sqrt(length) * euclidean_norm(keys.row(j));
      out.push_back(both > 0 ? tau_ * std::clamp(queries.logit(keys.row(j), 1) / both, -1.0, 1.0) : 0);
    }
    const double most = *std::max_element(out.begin(), out.end());
    for (double& x : out) x = std::exp(x - most);
    return out;
  }

  std::size_t future_;
  double tau_;
};

/// Means of queries, a cosine per key and query head, moments of weighted values and a triangular solution
/// for each.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double vectors = real(shape.query_heads) * real(shape.prompt), dim = real(shape.value_dim);
  Work scores = over_keys(shape, shape.prompt, 2) + over_values(shape, shape.prompt, 2);
  scores.flops = vectors * (4 * real(shape.head_dim) + 2 * dim * dim);
  scores.ops += 6 * vectors + real(shape.query_heads) * dim * dim * dim / 3;
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "cap_kv",
      .summary =
          "keeps values that fill directions which few others fill, where queries are expected to look",
      .paper = "CAPKV, arXiv 2026, https://arxiv.org/abs/2604.25975",
      .details =
          "As kvpress has it (CapPress). Per query head a key's weight is w = exp(tau cos(key, mean query)), 1 for "
          "the largest; the mean is of the prompt's queries before rotation, turned by the average rotation of the "
          "next `future` positions. With A = I + the sum of (w + 1e-6) v v' over the prompt without sinks, the "
          "score is w v' A^-1 v, mean over the query heads. Generated tokens are appended.",
      .departures =
          {{"paper: weights of products of query and key, not of cosines, without an average rotation",
            "kvpress's"}},
      .params = {real_param("tau", "5", {0, 1000}, "how sharply weights follow the cosine"),
                 count_param("future", "512", {1, 1 << 20},
                             "over how many positions to come rotations are averaged", "positions"),
                 sinks_param(4), granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .values = true, .queries = true, .positions = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<CapKv>}};
}

}  // namespace kvsim::policy::cap_kv
