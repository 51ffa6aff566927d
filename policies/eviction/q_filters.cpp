// Q-Filters: ranks keys along the direction that a head's queries share.
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/logits.hpp"
#include "sim/base/error.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy::q_filters {
namespace {

constexpr const char* kTable = "filters";

std::string maker(const Params& params) {
  return calibration_maker("q_filters", params, {});
}

/// Moments of one query head's queries, as attention uses them.
class QuerySums {
 public:
  explicit QuerySums(std::size_t dim) : sum_(dim), products_(dim * dim) {}

  void add(const MatrixView& queries) {
    for (std::size_t i = 0; i < queries.rows; ++i)
      for (std::size_t a = 0; a < sum_.size(); ++a) {
        const auto x = static_cast<double>(queries(i, a));
        sum_[a] += x;
        for (std::size_t b = 0; b <= a; ++b)
          products_[a * sum_.size() + b] += x * static_cast<double>(queries(i, b));
      }
    tokens_ += queries.rows;
  }
  std::size_t tokens() const { return tokens_; }
  /// Adds the first right singular vector of the queries to `filter`, turned to where most of them point,
  /// times `weight`.
  void add_direction(double weight, std::span<double> filter) const {
    const std::vector<double> first = eigenvectors(products_, sum_.size()).vectors;
    double along = 0;
    for (std::size_t c = 0; c < sum_.size(); ++c) along += sum_[c] * first[c];
    for (std::size_t c = 0; c < sum_.size(); ++c) filter[c] += (along < 0 ? -weight : weight) * first[c];
  }

 private:
  std::size_t tokens_ = 0;
  std::vector<double> sum_, products_;
};

/// The filter of a KV head: the mean of those of its query heads.
std::vector<float> filter_of(std::span<const QuerySums> heads, std::size_t dim) {
  std::vector<double> sum(dim);
  for (const QuerySums& head : heads) head.add_direction(1 / static_cast<double>(heads.size()), sum);
  return {sum.begin(), sum.end()};
}

class FilterCalibrator final : public Calibrator {
 public:
  explicit FilterCalibrator(const CacheUnit& layer)
      : group_(static_cast<std::size_t>(layer.group)),
        dim_(static_cast<std::size_t>(layer.head_dim)),
        heads_(static_cast<std::size_t>(layer.n_query_heads()), QuerySums(dim_)) {}

  bool needs_queries() const override { return true; }
  void observe(const LayerTokens& tokens) override {
    for (std::size_t head = 0; head < heads_.size(); ++head) heads_[head].add(tokens.queries[head]);
  }
  std::vector<CalibratedTable> tables() override {
    if (heads_[0].tokens() == 0) input_error("no token is there to measure", "q_filters");
    CalibratedTable out{kTable, {}};
    for (std::size_t first = 0; first < heads_.size(); first += group_)
      out.of_head.push_back(filter_of(std::span(heads_).subspan(first, group_), dim_));
    return {out};
  }

 private:
  std::size_t group_, dim_;
  std::vector<QuerySums> heads_;
};

class FilterDecoder final : public ScoredDecoder, public Renewing {
 public:
  FilterDecoder(const KeepRule& selection, std::vector<double> scores, std::vector<float> filter)
      : ScoredDecoder(selection, std::move(scores)), filter_(std::move(filter)) {}

  void observe(const Step& step) override { admit(step, product_of(filter_, step.keys.row(0))); }
  void renew(const Step& step) override { observe(step); }

 private:
  std::vector<float> filter_;
};

class QFilters final : public ScoredEviction {
 public:
  QFilters(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        decodes_(params.flag("decode")),
        of_prompt_(measures_prompt(params)),
        tables_(maker(params), params, unit) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const auto dim = static_cast<std::size_t>(unit().head_dim);
    if (of_prompt_) {
      std::vector<QuerySums> heads(static_cast<std::size_t>(unit().group), QuerySums(dim));
      for (int head = 0; head < unit().group; ++head)
        heads[static_cast<std::size_t>(head)].add(prompt.queries(head));
      filter_ = filter_of(heads, dim);
    } else {
      filter_ = tables_.lane(kTable, 0, dim);
    }
    std::vector<double> out(prompt.length());
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = product_of(filter_, prompt.keys(0).row(j));
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<FilterDecoder>(selection(budget), scores_of(slots), filter_);
  }

  bool decodes_, of_prompt_;
  CalibratedTables tables_;
  std::vector<float> filter_{};
};

/// With file=prompt also the products of all pairs of channels and their eigenvectors.
Cost cost_of(const Params& params, const CostShape& shape) {
  Work scores = over_keys(shape, shape.prompt, 2);
  if (measures_prompt(params)) {
    const double heads = real(shape.query_heads), dim = real(shape.head_dim);
    scores.flops = heads * dim * dim * (real(shape.prompt) + 10 * dim);
    scores.bytes += heads * dim * real(shape.prompt) * real(shape.element_bytes);
    scores.launches += 1;
  }
  return scored_cost(params, shape, {.prompt = scores, .token = over_keys(shape, 1, 2)});
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "q_filters",
      .summary = "keeps the keys that lie furthest along the direction that queries share",
      .paper =
          "Godey, Devoto, Zhao, Scardapane, Minervini, de la Clergerie, Sagot, Q-Filters: Leveraging "
          "Query-Key Geometry for Efficient Key-Value Cache Compression, arXiv 2025, https://arxiv.org/abs/2503.02812",
      .details =
          "The filter of a query head is the first right singular vector of its queries after rotation, turned to where "
          "they point; a KV head has the mean of its query heads' filters. Score of a token: its key times the filter, "
          "which never changes, so that generated tokens compete, too. kvsim calibrate q_filters measures filters on "
          "other runs, as the authors do; file=prompt measures the prompt's own.",
      .departures =
          {{"authors' code: filters from 3,000 queries at random of some 20 texts", "from all queries"},
           {"authors' code: a singular vector is turned so that more than half of the queries lie along it",
            "so that their sum does"},
           {"kvpress: generated tokens are appended, no window", "decode=false, window=0"}},
      .params = with_optional_calibration(
          {sinks_param(0), window_param(64), granularity_param(), drop_param(), decode_param(), tie_param()}),
      .needs = {.keys = true, .queries = true},
      .needs_of =
          [](const Params& params) { return Needs{.keys = true, .queries = measures_prompt(params)}; },
      .cost = cost_of,
      .calibration_maker = maker,
      .make_calibrator = [](const Params& /*params*/, const CacheUnit& layer) -> std::unique_ptr<Calibrator> {
        return std::make_unique<FilterCalibrator>(layer);
      },
      .rule = EvictionRule{.scored = true, .make = made<QFilters>}};
}

}  // namespace kvsim::policy::q_filters
