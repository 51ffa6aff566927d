// TriAttention: ranks keys by what the mean query of each frequency will attend.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "policies/api/score_policy.hpp"
#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/expected_queries.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::query_frequencies {
namespace {

constexpr const char* kMeans = "mean_query";
constexpr const char* kLengths = "mean_length";

std::string maker(const Params& params) {
  return calibration_maker("query_frequencies", params, {});
}

/// Of one query head, before rotation: the mean query, and how long the queries are in each pair of
/// components.
class Frequencies {
 public:
  /// Row i stands at position_of(i).
  template <class PositionOf>
  void add(const MatrixView& queries, const Rotary& rotary, PositionOf position_of) {
    mean_.resize(queries.cols);
    lengths_.resize(rotary.inv_freq.size());
    std::vector<float> plain(queries.cols);
    for (std::size_t i = 0; i < queries.rows; ++i) {
      std::ranges::copy(queries.row(i), plain.begin());
      unrotate(rotary, position_of(i), queries.cols, plain);
      for (std::size_t c = 0; c < plain.size(); ++c) mean_[c] += static_cast<double>(plain[c]);
      for (std::size_t pair = 0; pair < lengths_.size(); ++pair) {
        const auto [a, b] = components(rotary, pair);
        lengths_[pair] += std::hypot(static_cast<double>(plain[a]), static_cast<double>(plain[b]));
      }
    }
    tokens_ += queries.rows;
  }
  std::size_t tokens() const { return tokens_; }
  std::vector<float> mean() const { return divided(mean_); }
  std::vector<float> lengths() const { return divided(lengths_); }

 private:
  std::vector<float> divided(const std::vector<double>& sums) const {
    std::vector<float> out;
    for (const double sum : sums) out.push_back(static_cast<float>(sum / static_cast<double>(tokens_)));
    return out;
  }

  std::size_t tokens_ = 0;
  std::vector<double> mean_{}, lengths_{};
};

class FrequencyCalibrator final : public Calibrator {
 public:
  explicit FrequencyCalibrator(const CacheUnit& layer)
      : group_(static_cast<std::size_t>(layer.group)),
        heads_(static_cast<std::size_t>(layer.n_query_heads())) {}

  bool needs_queries() const override { return true; }
  void observe(const LayerTokens& tokens) override {
    for (std::size_t head = 0; head < heads_.size(); ++head)
      heads_[head].add(tokens.queries[head], tokens.rotary, [](std::size_t i) { return i; });
  }
  std::vector<CalibratedTable> tables() override {
    if (heads_[0].tokens() == 0) input_error("no token is there to measure", "query_frequencies");
    std::vector<CalibratedTable> out{{kMeans, {}}, {kLengths, {}}};
    for (std::size_t head = 0; head < heads_.size(); ++head) {
      if (head % group_ == 0)
        for (CalibratedTable& table : out) table.of_head.emplace_back();
      std::ranges::copy(heads_[head].mean(), std::back_inserter(out[0].of_head.back()));
      std::ranges::copy(heads_[head].lengths(), std::back_inserter(out[1].of_head.back()));
    }
    return out;
  }

 private:
  std::size_t group_;
  std::vector<Frequencies> heads_;
};

/// To mean 0 and a standard deviation of 1.
void standardise(std::span<double> scores) {
  constexpr double kLeast = 1e-6;
  const auto n = static_cast<double>(scores.size());
  double mean = 0, squares = 0;
  for (const double x : scores) mean += x / n;
  for (const double x : scores) squares += (x - mean) * (x - mean) / n;
  for (double& x : scores) x = (x - mean) / std::max(std::sqrt(squares), kLeast);
}

class QueryFrequencies final : public ScoredEviction {
 public:
  QueryFrequencies(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        reach_(params.count("reach")),
        of_prompt_(measures_prompt(params)),
        tables_(maker(params), params, unit) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const Rotary rotary = prompt.rotary();
    const std::size_t dim = prompt.keys(0).cols, pairs = rotary.inv_freq.size(),
                      group = static_cast<std::size_t>(unit().group);
    const std::size_t next = prompt.position(prompt.length() - 1) + 1;
    std::vector<std::size_t> ahead;
    for (std::size_t offset = 1; offset <= reach_; offset *= 2) ahead.push_back(next + offset);
    const std::vector<Turn> turns = mean_turn(rotary, ahead);
    std::vector<float> means, lengths;
    if (!of_prompt_) {
      means = tables_.lane(kMeans, 0, group * dim);
      lengths = tables_.lane(kLengths, 0, group * pairs);
    }
    std::vector<double> out(prompt.length(), -std::numeric_limits<double>::infinity());
    for (std::size_t g = 0; g < group; ++g) {
      if (of_prompt_) {
        Frequencies own;
        own.add(prompt.queries(static_cast<int>(g)), rotary,
                [&](std::size_t i) { return prompt.position(i); });
        means = own.mean();
        lengths = own.lengths();
      }
      const std::size_t at = of_prompt_ ? 0 : g;
      const std::vector<double> scores =
          scores_of_head(prompt.keys(0), rotary, turns, std::span(means).subspan(at * dim, dim),
                         std::span(lengths).subspan(at * pairs, pairs));
      for (std::size_t j = 0; j < out.size(); ++j) out[j] = std::max(out[j], scores[j]);
    }
    return out;
  }

  /// The mean query, turned as by the positions ahead, times each key, and the rest of the queries' lengths
  /// times the key's.
  static std::vector<double> scores_of_head(const MatrixView& keys, const Rotary& rotary,
                                            std::span<const Turn> turns, std::span<const float> mean,
                                            std::span<const float> lengths) {
    std::vector<double> ahead(mean.begin(), mean.end()), rest(lengths.size()), out(keys.rows);
    for (std::size_t pair = 0; pair < rest.size(); ++pair) {
      const auto [a, b] = components(rotary, pair);
      rest[pair] =
          rotary.attention_factor * (static_cast<double>(lengths[pair]) - std::hypot(ahead[a], ahead[b]));
      turns[pair].apply(ahead[a], ahead[b]);
    }
    for (std::size_t j = 0; j < keys.rows; ++j) {
      for (std::size_t c = 0; c < ahead.size(); ++c) out[j] += ahead[c] * static_cast<double>(keys(j, c));
      for (std::size_t pair = 0; pair < rest.size(); ++pair) {
        const auto [a, b] = components(rotary, pair);
        out[j] += rest[pair] * std::hypot(static_cast<double>(keys(j, a)), static_cast<double>(keys(j, b)));
      }
    }
    standardise(out);
    return out;
  }

  std::size_t reach_;
  bool of_prompt_;
  CalibratedTables tables_;
};

/// A product and the lengths of the pairs for every key and query head.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double keys = real(shape.query_heads) * real(shape.prompt) * real(shape.head_dim);
  Work scores = over_keys(shape, shape.prompt, 2);
  scores.flops = 4 * keys;
  if (measures_prompt(params))
    scores = scores + Work{.flops = 6 * keys, .bytes = keys * real(shape.element_bytes), .launches = 1};
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "query_frequencies",
      .summary = "keeps what the mean query of each frequency will attend: TriAttention's score",
      .paper = "TriAttention, arXiv 2026, https://arxiv.org/abs/2604.04921",
      .details =
          "Per query head and frequency of the rotation, the mean query before rotation and the mean length of queries are "
          "known. Score of a key: the product with the mean query as it will stand 1, 2, 4, ... `reach` positions ahead, mean "
          "over these, and for each frequency what the mean query lacks of that length times the key's length there; to mean 0 "
          "and deviation 1 per query head, then the largest of the group. Components without rotation count as they are. "
          "kvsim calibrate query_frequencies measures both on other runs, as the authors do; file=prompt takes those of the "
          "tokens that are ranked. Generated tokens are appended; triattention cuts the answer, too.",
      .departures =
          {{"authors' command line: the same tokens in every layer, by the mean of the layers' scores per KV head",
            "each layer by its own, which is their per_layer_perhead"},
           {"authors' code: noise of 1e-6 against ties", "tie"}},
      .params = with_optional_calibration(
          {count_param("reach", "65536", {1, 1 << 20}, "the furthest position ahead", "positions"),
           sinks_param(0), window_param(0), granularity_param(), ranked_tie_param()}),
      .needs = {.keys = true, .queries = true},
      .needs_of =
          [](const Params& params) { return Needs{.keys = true, .queries = measures_prompt(params)}; },
      .cost = cost_of,
      .calibration_maker = maker,
      .make_calibrator = [](const Params& /*params*/, const CacheUnit& layer) -> std::unique_ptr<Calibrator> {
        return std::make_unique<FrequencyCalibrator>(layer);
      },
      .rule = EvictionRule{.scored = true, .make = made<QueryFrequencies>}};
}

}  // namespace kvsim::policy::query_frequencies
