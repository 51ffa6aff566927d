#include "sim/replay/allocation_pass.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/unit_future.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

AllocationPass::AllocationPass(const trace::Sequence& sequence, const Request& request, const Plan& plan)
    : sequence_(&sequence), request_(&request) {
  const std::size_t lanes = std::size_t{sequence.model().n_layers} * sequence.model().n_kv_heads;
  const policy::CacheUnit lane = cache_unit(sequence.model(), 0, 0, 1, request.seed);
  for (const EvictionGroup& eviction_group : plan.eviction_groups) {
    for (const std::size_t cell : eviction_group.cells) {
      const policy::Part& part = request.cells[cell].composition.allocation;
      const auto allocation = part.make_allocation();
      if (const auto profile = allocation->profile(lane)) {
        Profiled& profiled = profiled_[part.text()];
        profiled.part = &part;
        profiled.requirement = row_requirement(sequence, *profile, request.cells[cell].composition.name);
        profiled.values.resize(lanes);
        needs_ = policy::merged(needs_, part.needs());
      }
      if (part.spec->uses_scores()) {
        const bool oracle = eviction_group.eviction->spec->is_oracle();
        OfEviction& wanted = (oracle ? of_oracles_ : scored_)[eviction_group.eviction->text()];
        wanted.eviction_group = &eviction_group;
        wanted.values.resize(lanes);
        needs_.queries = needs_.queries || oracle;
        layer_groups_ = layer_groups_ || eviction_group.layer_unit;
        needs_ = policy::merged(needs_, eviction_group.needs);
      }
    }
  }
}

std::size_t AllocationPass::most_rows() const {
  std::size_t most = 0;
  for (const auto& [text, profiled] : profiled_) most = std::max(most, profiled.requirement.rows);
  for (const auto& [text, scored] : scored_) most = std::max(most, scored.eviction_group->requirement.rows);
  return most;
}

std::vector<LaneGroup> AllocationPass::groups() const {
  return lane_groups(sequence_->model(), layer_groups_);
}

std::uint64_t AllocationPass::work() const {
  if (empty()) return 0;
  return std::uint64_t{sequence_->model().n_layers} * sequence_->model().n_q_heads *
         (sequence_->prompt_length() - first_prompt_row(*sequence_, most_rows()));
}

void AllocationPass::run(Workers& workers, Progress& progress) {
  if (empty()) return;
  const std::vector<LaneGroup> all = groups();
  workers.run(all.size(), [&](std::size_t i) { run_group(all[i], progress); });
}

void AllocationPass::run_group(LaneGroup group, Progress& progress) {
  const trace::Model& model = sequence_->model();
  const GroupTensors tensors(*sequence_, group, needs_);
  const std::size_t first = std::size_t{group.layer} * model.n_kv_heads + group.first_head;
  std::vector<Subscription> subscriptions;

  struct LaneProfile {
    std::unique_ptr<policy::Profile> profile;
    std::vector<double>* out;
  };
  std::vector<LaneProfile> profiles;
  for (auto& [text, profiled] : profiled_) {
    const auto allocation = profiled.part->make_allocation();
    for (std::uint32_t lane = 0; lane < group.n_lanes; ++lane) {
      profiles.push_back({allocation->profile(cache_unit(model, group.layer, group.first_head + lane, 1,
                                                         request_->seed, request_->tables)),
                          &profiled.values[first + lane]});
      subscriptions.push_back({profiles.back().profile.get(), lane, 1, profiled.requirement});
    }
  }

  struct Measured {
    std::vector<ReplayUnit> units;
    PerLane* out;
  };
  std::vector<Measured> scored;
  for (auto& [text, of] : scored_) {
    scored.push_back(
        {replay_units(*of.eviction_group, tensors, request_->seed, request_->tables, {}), &of.values});
    for (ReplayUnit& unit : scored.back().units) subscriptions.push_back(unit.subscription());
  }
  replay_prompt(tensors, subscriptions, progress);
  for (const LaneProfile& lane : profiles) *lane.out = lane.profile->values();
  for (const Measured& measured : scored)
    for (const ReplayUnit& unit : measured.units)
      for (std::size_t lane = unit.first_lane(); unit.covers(lane); ++lane)
        (*measured.out)[first + lane].assign(unit.eviction().scores().begin(),
                                             unit.eviction().scores().end());

  for (auto& [text, of] : of_oracles_) {
    std::vector<std::unique_ptr<UnitFuture>> futures;
    const auto future = [&](std::size_t lane, std::size_t n_lanes) -> const policy::Future& {
      return *futures.emplace_back(std::make_unique<UnitFuture>(
          tensors, lane, n_lanes, sequence_->first_measured(), decode_block(*sequence_)));
    };
    for (const ReplayUnit& unit :
         replay_units(*of.eviction_group, tensors, request_->seed, request_->tables, future))
      for (std::size_t lane = unit.first_lane(); unit.covers(lane); ++lane)
        of.values[first + lane] = dynamic_cast<const policy::Oracle&>(unit.eviction()).losses();
  }
}

std::vector<AllocatedTokens> allocated_tokens(const trace::Sequence& sequence, const Request& asked,
                                              Progress& progress) {
  Request request = asked;
  request.seed = prompt_seed(sequence, asked.seed);
  Workers workers(request.threads);
  Plan plan = outline(sequence, request);
  AllocationPass allocation_pass(sequence, request, plan);
  progress.total.store(allocation_pass.work(), std::memory_order_relaxed);
  allocation_pass.run(workers, progress);
  split_budgets(sequence, request, allocation_pass, plan, sequence.length());
  const std::size_t prompt = sequence.prompt_length(), heads = sequence.model().n_kv_heads;
  std::vector<AllocatedTokens> all;
  for (const Plan::CellPlan& cell : plan.cells) {
    AllocatedTokens& out = all.emplace_back();
    out.skipped = cell.skipped;
    for (std::size_t lane = 0; lane < cell.lane_budget.size(); ++lane) {
      if (lane % heads == 0) out.tokens.emplace_back();
      out.tokens.back().push_back(std::min(cell.lane_budget[lane], prompt));
    }
  }
  return all;
}

std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress) {
  if (request.cells.size() != 1) bug("shares are those of one cell");
  const AllocatedTokens given = std::move(allocated_tokens(sequence, request, progress)[0]);
  if (!given.skipped.empty()) usage_error(given.skipped, sequence.source().name());

  const std::size_t floor =
      std::min<std::size_t>(request.cells[0].composition.floor(), sequence.prompt_length());
  std::vector<std::vector<double>> shares;
  double sum = 0, lanes = 0;
  for (const std::vector<std::size_t>& layer : given.tokens) {
    std::vector<double>& above = shares.emplace_back();
    for (const std::size_t tokens : layer) {
      above.push_back(static_cast<double>(tokens - floor));
      sum += above.back();
      ++lanes;
    }
  }
  if (request.cells[0].composition.allocation.own_total()) return shares;
  for (std::vector<double>& layer : shares)
    for (double& share : layer) share = sum > 0 ? share / sum : 1 / lanes;
  return shares;
}

std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed) {
  std::vector<std::size_t> order = least_first(n, [&](std::size_t run) {
    return combine({seed, key_of("sampled_runs"), run});
  });
  const auto wanted = static_cast<std::size_t>(std::lround(share * static_cast<double>(n)));
  order.resize(std::clamp<std::size_t>(wanted, std::min<std::size_t>(n, 1), n));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace kvsim::sim
