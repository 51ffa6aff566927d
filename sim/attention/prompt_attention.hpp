#pragma once
/// The attention that the positions of a prompt get: on average, and in rows where one far key gets much of
/// it.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
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

/// Finds peaks: rows in which one far key gets much of the attention. Such rows seem to carry answers, so the
/// attention of peaks that falls on evicted keys (peak loss) stands in for evidence loss where no token is
/// marked as evidence.
///
/// In the row of one query head, far keys are the keys [sinks, P - recent) that the row sees. The row counts
/// if its best far key gets at least `threshold` of the whole row; of its far keys, those count that get at
/// least `share` of what the best gets. Peak loss is the counted attention that falls on evicted keys over
/// all counted attention, over all query heads and measured steps.
struct PeakRule {
  double threshold = 0.5;   ///< in (0, 1]
  double low = 0.3;         ///< threshold of the variant that counts more rows; at most `threshold`
  double share = 0.5;       ///< in (0, 1]
  std::size_t sinks = 4;    ///< first positions, which are not far
  std::size_t recent = 32;  ///< last positions before the cut, which are not far
  std::string text = "threshold=0.5,low=0.3,share=0.5,sinks=4,recent=32";  ///< canonical
};

/// Parses "threshold=0.5,sinks=4"; a parameter that is left out has its default. Throws Error(usage).
PeakRule parse_peak(std::string_view text);

/// The peak of one row.
struct Peak {
  double best = 0;                          ///< attention on the best far key
  double paid = 0;                          ///< attention on all far keys that count
  std::vector<policy::Position> positions;  ///< far keys that count; empty if `best` is below PeakRule::low
};

/// Finds the peak of a query head's row over positions 0 .. row.size() - 1. `prompt` is the number of tokens
/// of the sequence's prompt.
void find_peak(const PeakRule& rule, std::span<const float> row, std::size_t prompt, Peak& out);

}  // namespace kvsim::sim
