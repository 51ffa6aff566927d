#include "sim/replay.hpp"

#include <algorithm>

#include "sim/base/workers.hpp"
#include "sim/lane_group.hpp"
#include "sim/plan.hpp"

namespace kvsim::sim {
namespace {

std::vector<LaneGroup> lane_groups(const trace::Model& model, bool whole_layers) {
  std::vector<LaneGroup> groups;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    if (whole_layers) {
      groups.push_back({layer, 0, model.n_kv_heads});
    } else {
      for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) groups.push_back({layer, head, 1});
    }
  }
  return groups;
}

}  // namespace

Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress) {
  Workers workers(request.threads);
  const trace::Model& model = sequence.model();
  const Plan plan = make_plan(sequence, request, workers, progress);

  Outcome outcome;
  outcome.prompt = sequence.prompt_length();
  outcome.decode = sequence.decode_length();
  outcome.n_layers = model.n_layers;
  outcome.n_kv_heads = model.n_kv_heads;
  outcome.token_bytes = token_bytes(sequence);
  const std::size_t lanes = std::size_t{model.n_layers} * model.n_kv_heads;
  for (const Plan::CellPlan& cell : plan.cells) {
    CellOutcome& out = outcome.cells.emplace_back();
    out.skipped = cell.skipped;
    out.budget_tokens = cell.budget_tokens;
    if (!cell.skipped.empty()) continue;
    out.lanes.resize(lanes);
    if (request.decisions) out.residency.resize(lanes);
  }

  if (plan.families.empty()) return outcome;  // every cell is skipped
  const std::vector<LaneGroup> groups = lane_groups(model, plan.layer_groups);
  std::uint64_t work = 0;
  for (const LaneGroup& group : groups) work += group_work(sequence, plan, group);
  progress.total.store(work, std::memory_order_relaxed);
  // Every group writes only its own lanes' outcomes, so the result does not depend on who ran first.
  workers.run(groups.size(), [&](std::size_t i) {
    replay_lane_group(sequence, request, plan, groups[i], outcome, progress);
  });
  return outcome;
}

std::uint64_t estimate_bytes(const trace::Sequence& sequence, const Request& request) {
  const bool whole_layers = std::any_of(request.cells.begin(), request.cells.end(),
                                        [](const Cell& cell) { return cell.composition.layer_unit(); });
  const std::vector<LaneGroup> groups = lane_groups(sequence.model(), whole_layers);
  return std::min<std::size_t>(Workers(request.threads).threads(), groups.size()) *
         group_bytes(sequence, groups.front().n_lanes);
}

}  // namespace kvsim::sim
