#include "sim/replay/replay.hpp"

#include <algorithm>

#include "sim/base/workers.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/bounds.hpp"
#include "sim/replay/group_replay.hpp"
#include "sim/replay/idle_parts.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {
namespace {

/// What `lanes` of a cell say, whose allocation has said something or nothing.
std::vector<std::string> idle_of(const policy::Composition& composition, const std::string& allocation,
                                 const CellOutcome& cell, std::span<const IdleLane> lanes) {
  if (!cell.skipped.empty()) return {};
  const bool stored = composition.representation && std::ranges::all_of(lanes, &IdleLane::unchanged);
  const bool read =
      composition.selection && std::ranges::all_of(cell.lanes, [](const LaneOutcome& lane) {
        return lane.read && lane.read->loaded_tokens == static_cast<double>(lane.attended_tokens);
      });
  std::vector<std::string> idle{allocation, idle_scores(composition, lanes),
                                stored ? idle_representation(composition) : "",
                                read ? idle_selection(composition) : ""};
  std::erase(idle, "");
  return idle;
}

}  // namespace

Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress) {
  IdleParts idle;
  return replay(sequence, request, progress, idle);
}

Outcome replay(const trace::Sequence& sequence, const Request& asked, Progress& progress, IdleParts& idle) {
  Request request = asked;
  request.seed = prompt_seed(sequence, asked.seed);
  Workers workers(request.threads);
  const trace::Model& model = sequence.model();
  Plan plan = outline(sequence, request);
  const std::vector<LaneGroup> groups = lane_groups(model, plan.layer_groups);
  AllocationPass allocation_pass(sequence, request, plan);
  std::uint64_t work = allocation_pass.work();
  for (const LaneGroup& group : groups) work += group_work(sequence, request, plan, group);
  progress.total.store(work, std::memory_order_relaxed);
  allocation_pass.run(workers, progress);
  split_budgets(sequence, request, allocation_pass, plan, sequence.length());
  run_once(request, sequence.prompt_length(), plan);

  Outcome outcome;
  outcome.prompt = sequence.prompt_length();
  outcome.decode = sequence.decode_length();
  outcome.first_step = sequence.first_measured() < sequence.prompt_length() ? 0 : 1;
  outcome.cut = sequence.cut().text();
  outcome.instruction_before = sequence.instruction_before();
  outcome.evidence_tokens = plan.evidence.size();
  for (const std::optional<PromptSegment>& segment : plan.segments)
    if (segment) outcome.segment_tokens[static_cast<std::size_t>(*segment)] += 1;
  outcome.n_layers = model.n_layers;
  outcome.n_kv_heads = model.n_kv_heads;
  outcome.token_bytes = token_bytes(sequence);
  outcome.token_numbers = model.token_numbers();
  outcome.workload = sequence.source().header().capture.workload;
  const std::size_t lanes = std::size_t{model.n_layers} * model.n_kv_heads;
  for (const Plan::CellPlan& cell : plan.cells) {
    CellOutcome& out = outcome.cells.emplace_back();
    out.skipped = cell.skipped;
    out.budget_tokens = cell.budget_tokens;
    out.asked_tokens = cell.asked_tokens;
    if (!cell.skipped.empty()) continue;
    out.most_given = most_given(cell, sequence.prompt_length());
    out.lanes.resize(lanes);
    if (sequence.source().has_output_weights()) out.layers.resize(model.n_layers);
    if (request.decisions) out.resident_intervals.resize(lanes);
    if (request.scores) out.scores.resize(lanes);
  }

  idle.assign(plan.cells.size(), {});
  if (plan.eviction_groups.empty()) return outcome;  // every cell is skipped
  // Every group writes only the outcomes of its own lanes, so the result does not depend on the order of
  // groups.
  std::vector<LaneCurves> curves(lanes);
  std::vector<std::vector<IdleLane>> idle_lanes(plan.cells.size(), std::vector<IdleLane>(lanes));
  workers.run(groups.size(), [&](std::size_t i) {
    for (std::size_t soon = i; soon < std::min(i + 2, groups.size()); ++soon)
      will_replay(sequence, request, plan, groups[soon]);
    replay_lane_group(sequence, request, plan, groups[i], outcome, curves, idle_lanes, progress);
  });
  for (std::size_t cell = 0; cell < plan.cells.size(); ++cell) {
    const std::size_t same = plan.cells[cell].same_as;
    if (same == Plan::kNone) continue;
    const std::uint64_t budget_tokens = outcome.cells[cell].budget_tokens;
    const double asked_tokens = outcome.cells[cell].asked_tokens;
    outcome.cells[cell] = outcome.cells[same];
    outcome.cells[cell].budget_tokens = budget_tokens;
    outcome.cells[cell].asked_tokens = asked_tokens;
    idle_lanes[cell] = idle_lanes[same];
  }
  for (std::size_t cell = 0; cell < plan.cells.size(); ++cell)
    idle[cell] = idle_of(request.cells[cell].composition, plan.cells[cell].idle, outcome.cells[cell],
                         idle_lanes[cell]);
  add_bounds(request, std::move(curves), outcome);
  return outcome;
}

std::uint64_t estimate_bytes(const trace::Sequence& sequence, const Request& request) {
  const Plan plan = outline(sequence, request);
  const std::vector<LaneGroup> groups = lane_groups(sequence.model(), plan.layer_groups);
  const std::uint64_t lanes = std::uint64_t{sequence.model().n_layers} * sequence.model().n_kv_heads;
  const std::uint64_t steps = request.each_step ? sequence.measured_length() : 0;
  return std::min<std::size_t>(Workers(request.threads).threads(), groups.size()) *
             group_bytes(sequence, plan, groups.front().n_lanes) +
         request.cells.size() * lanes * (steps * sizeof(StepOutcome) + sequence.prompt_length() / 8) +
         bounds_bytes(lanes, sequence.prompt_length(), sequence.measured_length(), plan.bounds);
}

}  // namespace kvsim::sim
