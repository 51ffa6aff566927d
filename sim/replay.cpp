#include "sim/replay.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>

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

std::size_t thread_count(const Request& request) {
  return request.threads > 0 ? request.threads : static_cast<std::size_t>(tbb::info::default_concurrency());
}

/// In the caller's arena.
Outcome replay_here(const trace::Sequence& sequence, const Request& request, Progress& progress) {
  const trace::Model& model = sequence.model();
  const Plan plan = make_plan(sequence, request, progress);

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

  const std::vector<LaneGroup> groups = lane_groups(model, plan.layer_groups);
  std::uint64_t work = 0;
  for (const LaneGroup& group : groups) work += group_work(sequence, plan, group);
  progress.total.store(work, std::memory_order_relaxed);
  // Every group writes only its own lanes' outcomes, so the result does not depend on who ran first.
  tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t i) {
    replay_lane_group(sequence, request, plan, groups[i], outcome, progress);
  });
  return outcome;
}

}  // namespace

Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress) {
  const std::size_t threads = thread_count(request);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  return arena.execute([&] { return replay_here(sequence, request, progress); });
}

std::uint64_t estimate_bytes(const trace::Sequence& sequence, const Request& request) {
  const bool whole_layers = std::any_of(request.cells.begin(), request.cells.end(),
                                        [](const Cell& cell) { return cell.composition.layer_unit(); });
  const std::vector<LaneGroup> groups = lane_groups(sequence.model(), whole_layers);
  return std::min(thread_count(request), groups.size()) * group_bytes(sequence, groups.front().n_lanes);
}

}  // namespace kvsim::sim
