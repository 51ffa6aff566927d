#pragma once
/// Short forms of "replay these policies at these budgets" for tests.
#include <string>
#include <vector>

#include "policies/builtin.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::test {

inline sim::Request request_of(const std::vector<std::string>& policies,
                               const std::vector<std::string>& budgets, unsigned threads = 1) {
  sim::Request request;
  request.threads = threads;
  request.seed = 7;
  for (const std::string& budget : budgets)
    for (const std::string& text : policies)
      request.cells.push_back(
          {policy::parse_composition(text, policy::builtin()), sim::parse_budget(budget)});
  return request;
}

inline sim::Outcome run(const trace::Source& source, const sim::Request& request) {
  Progress progress;
  return sim::replay(trace::Sequence(source), request, progress);
}

/// Returns the numbers of a lane, or of every lane, in one vector, to compare outcomes bit by bit.
inline std::vector<double> numbers(const sim::LaneOutcome& lane) {
  std::vector<double> out(lane.holds_prompt.begin(), lane.holds_prompt.end());
  for (const double x : {static_cast<double>(lane.budget_tokens),
                         static_cast<double>(lane.kept_tokens),
                         static_cast<double>(lane.kept_candidates),
                         static_cast<double>(lane.steps),
                         lane.importance,
                         lane.importance_kept,
                         lane.importance_oracle,
                         lane.attention_loss,
                         lane.attention_loss_oracle,
                         lane.oracle_cosine,
                         lane.output_error,
                         lane.output_cosine,
                         lane.evidence.paid,
                         lane.evidence.dropped,
                         lane.peak.plain.paid,
                         lane.peak.plain.dropped,
                         lane.peak.weighted.dropped,
                         lane.peak.low.dropped,
                         lane.peak.dropped_times_error,
                         lane.direction.weight,
                         lane.direction.error,
                         lane.direction.cosine})
    out.push_back(x);
  return out;
}
inline std::vector<double> numbers(const sim::CellOutcome& cell) {
  std::vector<double> all;
  for (const sim::LaneOutcome& lane : cell.lanes)
    for (const double x : numbers(lane)) all.push_back(x);
  return all;
}

/// Returns R_avg: the mean over layers of sum(kept) / sum(importance) over a layer's lanes.
inline double r_avg(const sim::Outcome& outcome, std::size_t cell) {
  double sum = 0;
  for (std::size_t layer = 0; layer < outcome.n_layers; ++layer) {
    double kept = 0, all = 0;
    for (std::size_t head = 0; head < outcome.n_kv_heads; ++head) {
      const sim::LaneOutcome& lane = outcome.cells[cell].lanes[layer * outcome.n_kv_heads + head];
      kept += lane.importance_kept;
      all += lane.importance;
    }
    sum += kept / all;
  }
  return sum / outcome.n_layers;
}

inline double loss(const sim::CellOutcome& cell) {
  double sum = 0, steps = 0;
  for (const sim::LaneOutcome& lane : cell.lanes)
    sum += lane.attention_loss, steps += static_cast<double>(lane.steps);
  return sum / steps;
}

}  // namespace kvsim::test
