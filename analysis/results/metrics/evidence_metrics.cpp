#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

MetricValue evidence_loss(const Measured& of) {
  if (of.outcome.evidence_tokens == 0) return {};
  return share(paid(of, &sim::LaneOutcome::evidence));
}

MetricValue evidence_loss_at(const Measured& of, std::uint64_t step) {
  return share(paid(of, [&](const sim::LaneOutcome& lane) { return lane.each_step[step].evidence; }));
}

/// Mean over evidence tokens of `value`, a function of how many lanes hold the token at the last step.
template <class Get>
MetricValue mean_over_tokens(const Measured& of, Get value) {
  const std::uint64_t tokens = of.outcome.evidence_tokens;
  if (tokens == 0 || of.lanes.front().steps == 0) return {};
  double total = 0;
  for (std::size_t token = 0; token < tokens; ++token)
    total += value(sum(of, [&](const sim::LaneOutcome& lane) { return lane.holds_evidence[token]; }));
  return total / count(tokens);
}

MetricValue evidence_held(const Measured& of) {
  return mean_over_tokens(of, [&](double lanes) { return lanes / count(of.lanes.size()); });
}

MetricValue evidence_nowhere(const Measured& of) {
  return mean_over_tokens(of, [](double lanes) { return lanes == 0 ? 1.0 : 0.0; });
}

}  // namespace

std::vector<Metric> evidence_metrics() {
  return {
      {.key = "evidence_loss",
       .unit = "share",
       .meaning = "of the attention that the measured steps pay to evidence tokens, the part on tokens no "
                  "longer held; null if the trace marks none",
       .formula = "sum of a_t(j) over evidence positions j <= t not in S_t / sum over all evidence "
                  "positions j <= t, both over measured steps and lanes",
       .label = "evidence loss",
       .better = Better::lower,
       .percent = true,
       .measure = evidence_loss,
       .whole = Whole::all_lanes,
       .measure_step = evidence_loss_at,
       .console = {.heading = "evidence loss", .only_with = "evidence_loss"}},
      {.key = "evidence_held",
       .unit = "share",
       .meaning = "of the evidence tokens, those held at the last step, mean over lanes",
       .label = "evidence held",
       .better = Better::higher,
       .percent = true,
       .measure = evidence_held,
       .whole = Whole::all_lanes,
       .console = {.heading = "evidence held", .only_with = "evidence_held"}},
      {.key = "evidence_nowhere",
       .unit = "share",
       .meaning = "of the evidence tokens, those that no lane of the scope holds then",
       .label = "evidence held in no lane",
       .better = Better::lower,
       .percent = true,
       .measure = evidence_nowhere,
       .whole = Whole::all_lanes},
  };
}

}  // namespace kvsim::analysis
