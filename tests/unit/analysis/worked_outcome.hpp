#pragma once
/// A hand-made outcome of two layers with two lanes each, small enough to compute every metric by hand.
#include "sim/replay/replay.hpp"

namespace kvsim::test {

inline sim::Cell worked_cell(const char* name, const char* params, const char* budget) {
  sim::Cell cell;
  cell.composition.name = name;
  cell.composition.params = params;
  cell.budget.text = budget;
  return cell;
}

inline sim::LaneOutcome worked_lane(std::uint64_t budget, std::uint64_t kept, std::uint64_t kept_candidates,
                                    double importance, double importance_kept, double importance_oracle,
                                    double loss, double loss_oracle, double error) {
  sim::LaneOutcome lane;
  lane.budget_tokens = budget;
  lane.kept_tokens = kept;
  lane.held_at_end = kept + 2;
  lane.whole_at_end = 26;
  lane.candidates = 16;
  lane.kept_candidates = kept_candidates;
  lane.importance = importance;
  lane.importance_kept = importance_kept;
  lane.importance_oracle = importance_oracle;
  lane.steps = 2;
  lane.attention_loss = loss;
  lane.attention_loss_oracle = loss_oracle;
  lane.output_error = error;
  lane.output_cosine = 1.0;
  lane.oracle_cosine = 1.5;
  return lane;
}

/// Lanes of layer 0 keep 4 and 4 candidates, of layer 1 both 2; importances differ between lanes of a layer.
inline sim::CellOutcome worked_cell_outcome() {
  sim::CellOutcome cell;
  cell.budget_tokens = 5;
  cell.asked_tokens = 5;
  cell.most_given = 24;
  cell.lanes = {
      worked_lane(6, 6, 4, 1.0, 0.50, 0.75, 0.50, 0.25, 1.0),
      worked_lane(6, 6, 4, 3.0, 2.50, 2.75, 0.25, 0.25, 0.5),
      worked_lane(4, 4, 2, 2.0, 0.50, 1.00, 1.00, 0.50, 2.0),
      worked_lane(4, 3, 2, 2.0, 1.00, 1.00, 0.50, 0.00, 0.0),
  };
  return cell;
}

inline sim::Outcome worked_outcome() {
  sim::Outcome outcome;
  outcome.prompt = 24;
  outcome.decode = 2;
  outcome.cut = "question";
  outcome.instruction_before = 3;
  outcome.n_layers = 2;
  outcome.n_kv_heads = 2;
  outcome.token_bytes = 32;
  outcome.cells = {worked_cell_outcome()};
  return outcome;
}

inline sim::Request worked_request() {
  sim::Request request;
  request.cells = {worked_cell("snapkv", "snapkv(window=8,pool=max:7)+uniform()", "20%")};
  return request;
}

}  // namespace kvsim::test
