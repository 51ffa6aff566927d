#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {
namespace {

Value excess_loss(const Row& row) {
  const std::optional<double> loss = row["attention_loss"], oracle = row["attention_loss_oracle"];
  if (!loss || !oracle) return {};
  return *loss - *oracle;
}

}  // namespace

std::vector<Metric> attention_metrics() {
  return {
      {.key = "attention_loss",
       .unit = "share",
       .meaning = "attention of a measured step on tokens no longer held, mean over steps",
       .formula = "mean over measured steps t of 1 - sum of a_t(j) over j in S_t",
       .label = "attention loss",
       .better = Better::lower,
       .percent = true,
       .oracles_aim_at_it = true,
       .measure = exact_mean_over_steps<&sim::LaneOutcome::attention_loss>,
       .measure_step = exact_mean_at_step<&sim::StepOutcome::attention_loss>,
       .console = {.heading = "attention loss"}},
      {.key = "attention_loss_oracle",
       .unit = "share",
       .meaning = "the same for the best set of the same size, chosen anew at each step, at this policy's "
                  "own split",
       .formula = "attention_loss with the |S_t| positions of largest a_t(j) in place of S_t; no method "
                  "that reads |S_t| keys in the lane loses less",
       .label = "attention loss of the per-step oracle at this policy's own split",
       .percent = true,
       .measure = exact_mean_over_steps<&sim::LaneOutcome::attention_loss_oracle>,
       .measure_step = exact_mean_at_step<&sim::StepOutcome::attention_loss_oracle>,
       .console = {.heading = "loss oracle own split"}},
      {.key = "attention_loss_excess",
       .unit = "share",
       .meaning = "attention_loss above attention_loss_oracle",
       .derive = excess_loss,
       .console = {.heading = "over oracle"}},
      {.key = "oracle_cosine",
       .unit = "ratio",
       .meaning = "cosine of the attention on what is held to that on the best set of the same size, mean "
                  "over steps, at this policy's own split",
       .formula = "mean over t of the cosine between a_t on S_t and a_t on its |S_t| largest entries, a_t "
                  "being the lane's mean row (in A2SF a query head's)",
       .label = "cosine to the per-step ideal",
       .better = Better::higher,
       .oracles_aim_at_it = true,
       .measure = exact_mean_over_steps<&sim::LaneOutcome::oracle_cosine>},
  };
}

namespace {

template <sim::PaidAttention sim::PeakOutcome::*rows>
Value peak_loss(const Measured& of) {
  return share(paid(of, [](const sim::LaneOutcome& lane) { return lane.peak.*rows; }));
}

/// Mean over the query heads that have a peak.
Value peak_loss_by_head(const Measured& of) {
  double total = 0, heads = 0;
  for (const sim::LaneOutcome& lane : of.lanes)
    for (const sim::PaidAttention& head : lane.peak.heads) {
      const std::optional<double> loss = number(share(head));
      total += loss.value_or(0);
      heads += loss ? 1 : 0;
    }
  return ratio(total, heads);
}

Value peak_loss_output(const Measured& of) {
  const double all = paid(of, [](const sim::LaneOutcome& lane) { return lane.peak.plain; }).paid;
  return ratio(sum(of, [](const sim::LaneOutcome& lane) { return lane.peak.dropped_times_error; }), all);
}

/// Every one is a ratio of sums over all lanes of the scope, and better when it is lower.
Metric peak(const char* key, const char* unit, const char* meaning, const char* label,
            Value (*measure)(const Measured&)) {
  return {.key = key,
          .unit = unit,
          .meaning = meaning,
          .label = label,
          .better = Better::lower,
          .percent = std::string_view(unit) == "share",
          .measure = measure,
          .whole = Whole::all_lanes};
}

}  // namespace

std::vector<Metric> peak_metrics() {
  Metric plain = peak("peak_loss", "share",
                      "of the attention on peaks (far keys of rows in which one holds at least half), the "
                      "part on tokens no longer held; null if no row has a peak",
                      "peak loss", peak_loss<&sim::PeakOutcome::plain>);
  plain.formula =
      "attention on counted keys not in S_t / attention on all counted keys, over query heads and measured "
      "steps. Far keys are 4 ... P-33 (`sinks`, `recent` of --peak). A row counts if its best far key has at "
      "least half of the row's attention (`threshold`), and of its far keys those with at least half of the "
      "best (`share`)";
  plain.console = {.heading = "peak loss", .only_with = "peak_loss"};
  return {
      plain,
      peak("peak_loss_weighted", "share",
           "peak_loss with both sums weighted by the attention on the row's best far key",
           "peak loss, rows weighted by their peak", peak_loss<&sim::PeakOutcome::weighted>),
      peak("peak_loss_low", "share", "peak_loss of rows from the lower threshold on, 0.3 (`low` of --peak)",
           "peak loss, lower threshold", peak_loss<&sim::PeakOutcome::low>),
      peak("peak_loss_by_head", "share", "mean over the query heads that have a peak of their own peak_loss",
           "peak loss, mean over heads", peak_loss_by_head),
      peak("peak_loss_output", "ratio",
           "peak_loss with what was dropped in a row times the row's output error",
           "peak loss times output error", peak_loss_output)};
}

}  // namespace kvsim::analysis
