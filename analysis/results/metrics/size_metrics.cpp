#include <algorithm>

#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

MetricValue evicted_tokens(const Measured& of) {
  return count(of.outcome.prompt + of.outcome.decode) - mean(of, &sim::LaneOutcome::held_at_end);
}

MetricValue kept_bytes(const Measured& of) {
  std::uint64_t kept = 0;
  for (const sim::LaneOutcome& lane : of.lanes) kept += lane.kept_tokens;
  return kept * of.outcome.token_bytes;
}

/// A lane that never evicts is given the sequence; it spends its prompt.
MetricValue allocated_tokens(const Measured& of) {
  const std::uint64_t most = std::max(of.outcome.prompt, of.cell.budget_tokens);
  return mean(of, [&](const sim::LaneOutcome& lane) { return std::min(lane.budget_tokens, most); });
}

}  // namespace

std::vector<Metric> size_metrics() {
  return {
      {.key = "kept_tokens",
       .unit = "tokens per lane",
       .meaning = "positions held after the prompt (scope step: at the step), mean over lanes",
       .label = "tokens held after the prompt",
       .measure = mean_of<&sim::LaneOutcome::kept_tokens>,
       .measure_step = mean_at_step<&sim::StepOutcome::held>,
       .console = {.heading = "kept tokens", .show = Console::Show::tokens}},
      {.key = "held_tokens",
       .unit = "tokens per lane",
       .meaning = "positions held at the last step, mean over lanes: what a policy that lets generated "
                  "tokens stay comes to",
       .label = "tokens held at the end",
       .measure = mean_of<&sim::LaneOutcome::held_at_end>,
       .console = {.heading = "held tokens", .show = Console::Show::tokens, .unlike = "kept_tokens"}},
      {.key = "evicted_tokens",
       .unit = "tokens per lane",
       .meaning = "positions of the sequence not held at the last step, mean over lanes; 0: the policy never "
                  "evicted",
       .label = "tokens evicted",
       .measure = evicted_tokens},
      {.key = "kept_bytes",
       .unit = "bytes",
       .meaning = "their keys and values as the trace stores them, over the scope's lanes",
       .label = "bytes held after the prompt",
       .measure = kept_bytes,
       .whole = Whole::all_lanes,
       .console = {.heading = "kept size", .show = Console::Show::bytes}},
      {.key = "allotted_tokens",
       .unit = "tokens per lane",
       .meaning = "what the allocation gave out, mean over lanes; budget_tokens unless a published formula "
                  "spends another total",
       .measure = allocated_tokens},
  };
}

}  // namespace kvsim::analysis
