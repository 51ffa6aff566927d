// Chooses keys one by one whose weighted exponentials add up to those of the whole prompt.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/reference_rows.hpp"

namespace kvsim::policy::matching_pursuit {
namespace {

/// Of a weight, as the authors have them.
const double kLeast = 1e-12, kMost = std::exp(7.0);

using Numbers = std::vector<double>;

/// Least squares over columns that come one by one.
class Pursuit {
 public:
  Pursuit(const ReferenceRows& reference, std::size_t keys) : keys_(keys), with_sums_(keys), moments_(keys) {
    Numbers row(keys);
    rows_.reserve(reference.rows() * keys);
    for (std::size_t i = 0; i < reference.rows(); ++i) {
      const double sum = reference.find(i, row);
      rows_.insert(rows_.end(), row.begin(), row.end());
      for (std::size_t j = 0; j < keys_; ++j) with_sums_[j] += row[j] * sum;
    }
    correlations_ = with_sums_;
  }

  /// Products of all columns with what is left of the sums.
  const Numbers& correlations() const { return correlations_; }

  void take(std::size_t key) {
    if (moments_[key].empty()) find_moments(key);
    const Numbers& with = moments_[key];
    // The next row of the Cholesky factor of their moments, and of the solution with it alone.
    Numbers row;
    double pivot = with[key] + kMatchingRidge, rest = with_sums_[key];
    for (std::size_t a = 0; a < taken_.size(); ++a) {
      double x = with[taken_[a]];
      for (std::size_t k = 0; k < a; ++k) x -= factor_[a][k] * row[k];
      row.push_back(x / factor_[a][a]);
      pivot -= row[a] * row[a];
      rest -= row[a] * forward_[a];
    }
    row.push_back(std::sqrt(std::max(pivot, kMatchingRidge)));
    forward_.push_back(rest / row.back());
    factor_.push_back(std::move(row));
    taken_.push_back(key);
    Numbers weights = forward_;
    correlations_ = with_sums_;
    for (std::size_t a = weights.size(); a-- > 0;) {
      weights[a] /= factor_[a][a];
      for (std::size_t k = 0; k < a; ++k) weights[k] -= factor_[a][k] * weights[a];
      const double weight = std::clamp(weights[a], kLeast, kMost);
      const Numbers& column = moments_[taken_[a]];
      for (std::size_t j = 0; j < keys_; ++j) correlations_[j] -= weight * column[j];
    }
  }

 private:
  static constexpr std::size_t kAtOnce = 4;  ///< columns, and rows

  /// Products of a key's column with all, and of those that may be taken next: the rows are more than a cache
  /// of the processor holds, so that reading them is what takes time.
  void find_moments(std::size_t key) {
    std::vector<std::size_t> next;
    for (std::size_t j = 0; j < keys_; ++j)
      if (j != key && moments_[j].empty()) next.push_back(j);
    const std::size_t more = std::min(kAtOnce - 1, next.size());
    std::ranges::partial_sort(
        next, next.begin() + static_cast<std::ptrdiff_t>(more),
        [&](std::size_t a, std::size_t b) { return correlations_[a] > correlations_[b]; });
    next.resize(more);
    next.push_back(key);
    for (const std::size_t of : next) moments_[of].resize(keys_);
    for (std::size_t i = 0; i < rows_.size(); i += kAtOnce * keys_)
      for (const std::size_t of : next) add_products(i, of, moments_[of].data());
  }

  /// Of so many rows from place `i` on, in float; sums of them are in double.
  void add_products(std::size_t i, std::size_t key, double* sums) const {
    const float* row[kAtOnce];
    float times[kAtOnce];
    for (std::size_t r = 0; r < kAtOnce; ++r) {
      const bool there = i + r * keys_ < rows_.size();
      row[r] = rows_.data() + (there ? i + r * keys_ : i);
      times[r] = there ? row[r][key] : 0;
    }
    for (std::size_t j = 0; j < keys_; ++j)
      sums[j] += static_cast<double>((times[0] * row[0][j] + times[1] * row[1][j]) +
                                     (times[2] * row[2][j] + times[3] * row[3][j]));
  }

  std::size_t keys_;
  std::vector<float> rows_{};           ///< [rows, keys]
  Numbers with_sums_, correlations_{};  ///< per key
  std::vector<Numbers> moments_;        ///< per key the products of its column with all; empty: not known yet
  std::vector<std::size_t> taken_{};    ///< keys, in their order
  std::vector<Numbers> factor_{};       ///< rows of a lower triangle
  Numbers forward_{};                   ///< the factor's solution of their products with the sums
};

class MatchingPursuit final : public ScoredEviction {
 public:
  MatchingPursuit(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), queries_(ReferenceQueries::of(params)), share_(params.share("share")) {}

 private:
  /// The length of the prompt less the turn in which a key is taken; below those, by correlation with the
  /// rest.
  std::vector<double> score(const Prompt& prompt) override {
    const ReferenceRows reference(prompt, unit(), 0, queries_);
    const std::size_t n = prompt.length();
    Pursuit pursuit(reference, n);
    std::vector<char> taken(n);
    Numbers out(n);
    const auto turns = static_cast<std::size_t>(std::ceil(share_ * static_cast<double>(n)));
    for (std::size_t turn = 0; turn <= turns; ++turn) {
      const Numbers& correlation = pursuit.correlations();
      std::vector<std::size_t> left;
      for (std::size_t j = 0; j < n; ++j)
        if (taken[j] == 0) left.push_back(j);
      const auto less = [&](std::size_t a, std::size_t b) { return correlation[a] < correlation[b]; };
      if (turn == turns) {
        std::ranges::stable_sort(left, less);
        for (std::size_t rank = 0; rank < left.size(); ++rank) out[left[rank]] = static_cast<double>(rank);
        break;
      }
      const std::size_t best = *std::ranges::max_element(left, less);
      taken[best] = 1;
      out[best] = static_cast<double>(n - turn);
      pursuit.take(best);
    }
    return out;
  }

  ReferenceQueries queries_;
  double share_;
};

/// A product of all columns with the one that is taken, and a solution, at each turn.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double rows = real(reference_rows(shape.prompt, params.count("rows"))) * real(shape.query_heads),
               pairs = rows * real(shape.prompt), turns = params.share("share") * real(shape.prompt);
  Work scores = over_keys(shape, shape.prompt, 0) + softmax_of(shape, pairs);
  scores.flops += turns * (2 * pairs + real(shape.kv_heads * shape.prompt) * turns) +
                  real(shape.kv_heads) * turns * turns * turns;
  scores.launches += 3 * turns;
  Cost out = scored_cost(params, shape, prompt_scoring(0, scores));
  out.repeated_at_once = ReferenceQueries::repeated_at_once(params);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "matching_pursuit",
      .summary = "chooses keys one by one whose weighted exponentials add up to those of the whole prompt",
      .paper =
          "Zweiger, Fu, Guo, Kim, Fast KV Compaction via Attention Matching, arXiv 2026, "
          "https://arxiv.org/abs/2602.16284",
      .details =
          "How Attention Matching chooses keys by orthogonal matching pursuit. Queries of the prompt, or of the model "
          "repeating it (queries=), of all query heads of a KV head together, see every key of the prompt, later "
          "ones too; a row's exponentials are divided by its largest. The key is taken whose column has the largest "
          "product with what is left of the sums over columns; then the weights of all that were taken are solved for by least squares, clamped to 1e-12 and "
          "e^7, and what is left is computed anew. After `share` of the prompt the others follow in the order of "
          "that product. fitted_values is what the method does with the keys. A sink of the model takes no part. "
          "Generated tokens are appended.",
      .departures =
          {{"paper: queries of the model repeating the text and answering questions that it makes up; "
            "the code can take those of the prompt instead (context prefill)",
            "those of the prompt; queries=run: of the model repeating it; no questions"},
           {"authors' code: draws some of the queries at random", "rows= takes them spread evenly"},
           {"authors' code: keys whose weight ends below e^-7 are dropped for others, three times at most",
            "they stay"},
           {"authors' code: every key of a budget is taken so",
            "up to share=0.2 of the prompt, their largest budget"},
           {"authors' code: the fast form takes four keys at a turn and solves at every second one",
            "one, and at every turn"},
           {"authors' code: least squares without a ridge, 1e-6 where that fails", "1e-6 always"}},
      .params = {share_param(
                     "share", "0.2",
                     "of the prompt's keys that are taken one by one; larger budgets take more at once"),
                 reference_queries_param(), reference_rows_param(), sinks_param(0), window_param(0)},
      .needs = {.keys = true, .queries = true},
      .needs_of = [](const Params& params) { return ReferenceQueries::needs(params, {.keys = true}); },
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<MatchingPursuit>}};
}

}  // namespace kvsim::policy::matching_pursuit
