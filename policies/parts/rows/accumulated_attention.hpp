#pragma once
/// Scores that are the attention received so far: over which rows, how they age, and what divides the sum.
/// The same rule serves the prompt (all rows at once) and decoding (one row per step).
#include <memory>
#include <span>
#include <vector>

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy {

// Parameters of policies that accumulate attention.
ParamSpec recent_param(const char* fallback);
ParamSpec rows_param();
ParamSpec prompt_weight_param();
ParamSpec normalise_param();

struct Accumulation {
  /// What the prompt contributes: the sum of its rows, their mean, or their mean over the rows that see the
  /// position. A mean counts as one row.
  enum class PromptWeight { sum, mean, visible };

  std::size_t rows = kAllRows;  ///< last prompt rows that count
  PromptWeight prompt_weight = PromptWeight::sum;
  double decay = 1;   ///< a row's weight falls by this factor with every later row
  bool mean = false;  ///< divide by the number of rows that count for the position
  /// With `mean`: also count the rows for which a sliding window hides the position.
  bool unseen = false;
  bool decode = true;  ///< false: generated tokens are appended
  Feedback feedback = Feedback::renorm;

  /// Reads the declared ones of these parameters; the others keep the values above.
  static Accumulation of(const Params& params);
};

/// PolicySpec::needs_of of policies built from Accumulation::of.
Needs accumulation_needs(const Params& params);

/// Attention that a position has received. `rows`: how many rows it received it from, or counts as.
struct Received {
  double sum = 0, rows = 0;
};

class AccumulatingDecoder final : public ScoredDecoder {
 public:
  AccumulatingDecoder(const CacheUnit& unit, const Accumulation& rule, const KeepRule& selection,
                      std::vector<Received> received);

  void observe(const Step& step) override;
  void close_slots(std::span<const std::size_t> victims) override;

 private:
  CacheUnit unit_;
  Accumulation rule_;
  std::vector<Received> received_;  // per slot, with rule_.mean; without it scores are sums
  std::vector<double> row_;
};

class AccumulatingEviction final : public ScoredEviction {
 public:
  AccumulatingEviction(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit, params.real("recent")),
        rule_(Accumulation::of(params)),
        sums_(unit.n_query_heads(), rule_.rows) {}

  std::size_t prompt_rows() const override { return rule_.rows; }
  void observe(const PromptRows& rows) override;
  std::size_t rows_beside_columns() const override { return plain_sum() ? 0 : rule_.rows; }
  void observe_columns(const PromptColumns& columns) override;
  double rows_in_score(std::size_t prompt) const override;
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override;

 private:
  bool plain_sum() const { return rule_.rows == kAllRows && rule_.decay == 1; }
  std::vector<double> score(const Prompt& prompt) override;

  Accumulation rule_;
  ColumnSums sums_;
  std::vector<Received> received_;  // per prompt position
};

}  // namespace kvsim::policy
