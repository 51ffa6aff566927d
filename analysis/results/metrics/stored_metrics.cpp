#include <cmath>

#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

template <double sim::StoredOutcome::*member>
double total(const Measured& of) {
  return sum(of, [](const sim::LaneOutcome& lane) { return (*lane.stored).*member; });
}

/// Mean over lanes of the mean over a lane's measured steps, of a sum over steps.
template <double sim::StoredOutcome::*member>
Value stored_mean_over_steps(const Measured& of) {
  if (!stores_others(of) || of.lanes.front().steps == 0) return {};
  return total<member>(of) / count(of.lanes.front().steps) / count(of.lanes.size());
}

/// With the recorded numbers, what is missing of a row is what was evicted.
Value total_variation(const Measured& of) {
  return stores_others(of) ? stored_mean_over_steps<&sim::StoredOutcome::total_variation>(of)
                           : mean_over_steps<&sim::LaneOutcome::attention_loss>(of);
}

Value total_variation_at(const Measured& of, std::uint64_t step) {
  return stores_others(of) ? mean_at_step<&sim::StepOutcome::total_variation>(of, step)
                           : mean_at_step<&sim::StepOutcome::attention_loss>(of, step);
}

Value logit_rmse(const Measured& of) {
  if (!stores_others(of)) return {};
  const double logits = sum(of, [](const sim::LaneOutcome& lane) { return lane.stored->logits; });
  return logits == 0 ? Value() : std::sqrt(total<&sim::StoredOutcome::logit_squares>(of) / logits);
}

template <double sim::StoredOutcome::*error, double sim::StoredOutcome::*squares>
Value relative(const Measured& of) {
  if (!stores_others(of)) return {};
  const double whole = total<squares>(of);
  return whole == 0 ? Value() : std::sqrt(total<error>(of) / whole);
}

}  // namespace

std::vector<Metric> stored_metrics() {
  return {
      {.key = "total_variation",
       .unit = "share",
       .meaning = "half the sum of the differences between the recorded row and the row over what is stored, "
                  "mean over "
                  "query heads and steps; attention_loss where the recorded numbers are stored",
       .formula = "half the sum over all tokens of |p' - a|; p' is the softmax of the query with the "
                  "stored keys over S_t, and 0 where a token is not held",
       .label = "total variation",
       .better = Better::lower,
       .percent = true,
       .oracles_aim_at_it = true,
       .measure = total_variation,
       .measure_step = total_variation_at,
       .console = {.heading = "total variation", .only_with = "logit_rmse"}},
      {.key = "logit_rmse",
       .unit = "logits",
       .meaning =
           "root of the mean squared error of the logits of what is held, over query heads and steps; null "
           "where the recorded numbers are stored, as are the next three",
       .formula = "root of the mean over steps, heads and held tokens of (l' - l)^2, l being the scaled "
                  "product of query and key",
       .label = "RMS error of logits",
       .better = Better::lower,
       .measure = logit_rmse,
       .console = {.heading = "logit RMSE", .only_with = "logit_rmse"}},
      {.key = "top_overlap",
       .unit = "share",
       .meaning = "of the 32 tokens with the most attention in the recorded row, those among as many of the "
                  "row over "
                  "what is stored, mean over query heads and steps",
       .label = "overlap of the top tokens",
       .better = Better::higher,
       .percent = true,
       .measure = stored_mean_over_steps<&sim::StoredOutcome::top_overlap>},
      {.key = "key_error",
       .unit = "ratio",
       .meaning =
           "distance of the stored keys from the recorded ones, over the latter's length, of what is held at "
           "the last step",
       .label = "relative error of keys",
       .better = Better::lower,
       .measure = relative<&sim::StoredOutcome::key_error, &sim::StoredOutcome::key_squares>},
      {.key = "value_error",
       .unit = "ratio",
       .meaning = "the same of values",
       .label = "relative error of values",
       .better = Better::lower,
       .measure = relative<&sim::StoredOutcome::value_error, &sim::StoredOutcome::value_squares>},
  };
}

}  // namespace kvsim::analysis
