#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

/// Outputs after the projection are those of a layer: undefined for single heads and without output weights.
template <double sim::LayerOutcome::*total>
Value projected(const Measured& of) {
  if (of.scope != Scope::layer || of.cell.layers.empty() || of.outcome.measured_steps() == 0) return {};
  return of.cell.layers[of.layer].*total / count(of.outcome.measured_steps());
}

/// Mean over the rows of all lanes by their weight.
template <double sim::DirectionOutcome::*total>
Value direction(const Measured& of) {
  const double weight = sum(of, [](const sim::LaneOutcome& lane) { return lane.direction.weight; });
  return ratio(sum(of, [](const sim::LaneOutcome& lane) { return lane.direction.*total; }), weight);
}

}  // namespace

std::vector<Metric> output_metrics() {
  return {
      {.key = "output_error",
       .unit = "ratio",
       .meaning = "distance of the attention output that the compressed cache computes from the full "
                  "cache's, over the latter's length, mean over query heads and steps",
       .formula = "|o' - o| / |o|, where o = sum of a(j) v_j over j <= t, o' = sum of a(j) v_j over j in "
                  "S_t / sum of a(j) over j in S_t, and a is the head's own attention; o' = 0 if nothing "
                  "attended is held; for o = 0 the error is 0 if o' is 0 too, else 1; it can exceed 1",
       .label = "output error",
       .better = Better::lower,
       .oracles_aim_at_it = true,
       .measure = mean_over_steps<&sim::LaneOutcome::output_error>,
       .console = {.heading = "output error"}},
      {.key = "output_cosine",
       .unit = "ratio",
       .meaning = "cosine of the same two outputs, mean over query heads and steps",
       .formula = "o' o / (|o'| |o|); with a zero vector 1 if both are 0, else 0",
       .label = "cosine of outputs",
       .better = Better::higher,
       .oracles_aim_at_it = true,
       .measure = mean_over_steps<&sim::LaneOutcome::output_cosine>},
      {.key = "projected_output_error",
       .unit = "ratio",
       .meaning = "output_error after the output projection over all heads of a layer; null without output "
                  "weights and at scope head",
       .formula = "output_error of W o' and W o, o being the outputs of all query heads of a layer in one "
                  "vector and W the output projection",
       .label = "output error after projection",
       .better = Better::lower,
       .oracles_aim_at_it = true,
       .measure = projected<&sim::LayerOutcome::projected_error>},
      {.key = "projected_output_cosine",
       .unit = "ratio",
       .meaning = "output_cosine after the output projection, likewise",
       .label = "cosine of outputs after projection",
       .better = Better::higher,
       .oracles_aim_at_it = true,
       .measure = projected<&sim::LayerOutcome::projected_cosine>},
      {.key = "direction_error",
       .unit = "ratio",
       .meaning = "distance of the mean value of what is no longer held from that of what is held, over the "
                  "length of the full cache's output, mean over query heads and steps; those that have lost "
                  "less than 1 % of their attention count as much less; null if none has lost any",
       .formula = "|v_E - v_K| / |o| = output_error of the row / m, where m = sum of a(j) over j not in S_t, "
                  "v_E = sum of a(j) v_j over these / m, v_K = o', so that o - o' = m (v_E - v_K); weight "
                  "min(m / 0.01, 1)",
       .label = "direction error",
       .better = Better::lower,
       .measure = direction<&sim::DirectionOutcome::error>,
       .whole = Whole::all_lanes},
      {.key = "direction_cosine",
       .unit = "ratio",
       .meaning = "cosine of the same two mean values, v_E and v_K, mean likewise",
       .label = "cosine of evicted and held values",
       .better = Better::higher,
       .measure = direction<&sim::DirectionOutcome::cosine>,
       .whole = Whole::all_lanes},
  };
}

}  // namespace kvsim::analysis
