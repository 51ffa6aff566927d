#include "analysis/results/metrics/families.hpp"

namespace kvsim::analysis {
namespace {

/// Bounds are of all lanes together.
template <std::optional<double> sim::CellOutcome::*bound>
Value of_cell(const Measured& of) {
  return of.scope == Scope::all ? value_of(of.cell.*bound) : Value();
}

}  // namespace

std::vector<Metric> bound_metrics() {
  return {
      {.key = "r_bound",
       .unit = "share",
       .meaning = "most importance that any choice of as many prompt tokens retains, at any split over "
                  "lanes; scope all",
       .formula = "sum of the N largest w_j / (sum of w over the lanes of j's layer), over the number of "
                  "layers; N: positions of the prompt that the policy holds",
       .label = "most importance retained over all choices and splits",
       .percent = true,
       .measure = of_cell<&sim::CellOutcome::r_bound>,
       .whole = Whole::all_lanes,
       .console = {.heading = "r bound any split", .only_with = "attention_loss_bound"}},
      {.key = "attention_loss_bound",
       .unit = "share",
       .meaning = "least attention loss of any schedule and any split of the total, for policies of the same "
                  "holding; scope all, and only if bounds were asked for",
       .label = "least attention loss over all schedules and splits",
       .percent = true,
       .measure = of_cell<&sim::CellOutcome::attention_loss_bound>,
       .whole = Whole::all_lanes,
       .console = {.heading = "loss bound any split", .only_with = "attention_loss_bound"}},
  };
}

}  // namespace kvsim::analysis
