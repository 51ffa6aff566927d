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

}  // namespace kvsim::analysis
