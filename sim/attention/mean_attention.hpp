#pragma once
/// Measures how much attention each prompt position gets on average.
#include <cstddef>
#include <vector>

#include "policies/api/eviction.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// The rows that a position's mean is taken over. With `all_rows` these are all rows of the prompt, so that
/// the means sum to 1 and late positions, which few rows see, get little; with `visible`, the rows that see
/// the position.
enum class RowMean { all_rows, visible };

/// Observes one lane's prompt (sim/attention/prompt_pass.hpp) and averages attention over rows and over the
/// lane's query heads.
class MeanAttention final : public policy::PromptObserver {
 public:
  /// `window`: sliding window of the layer, -1: none. `group`: query heads of the lane.
  MeanAttention(RowMean mean, std::ptrdiff_t window, std::size_t group)
      : mean_(mean), window_(window), group_(group) {}

  std::size_t prompt_rows() const override { return policy::kAllRows; }
  void observe(const policy::PromptRows& rows) override;
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const policy::PromptColumns& columns) override;
  void finish_prompt(const policy::Prompt& prompt) override;
  /// The mean of each prompt position; valid after finish_prompt().
  const std::vector<double>& values() const { return values_; }

 private:
  RowMean mean_;
  std::ptrdiff_t window_;
  std::size_t group_;
  std::vector<double> values_;  ///< sums until finish_prompt()
};

/// Throws Error(usage) unless the trace stores the queries of positions `from` and later.
void require_attention(const trace::Sequence& sequence, std::size_t from);

}  // namespace kvsim::sim
