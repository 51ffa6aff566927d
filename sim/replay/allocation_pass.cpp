#include "sim/replay/allocation_pass.hpp"

#include <algorithm>
#include <functional>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/attention/unit_future.hpp"

namespace kvsim::sim {

AllocationPass::AllocationPass(const trace::Sequence& sequence, const Request& request, const Plan& plan)
    : sequence_(&sequence), request_(&request) {
  const std::size_t lanes = std::size_t{sequence.model().n_layers} * sequence.model().n_kv_heads;
  const policy::CacheUnit lane = cache_unit(sequence.model(), 0, 0, 1, request.seed);
  for (const EvictionGroup& eviction_group : plan.eviction_groups) {
    for (const std::size_t cell : eviction_group.cells) {
      const policy::Part& part = request.cells[cell].composition.allocation;
      const auto allocation = part.spec->make_allocation(part.params);
      if (const auto profile = allocation->profile(lane)) {
        Profiled& profiled = profiled_[part.text()];
        profiled.part = &part;
        profiled.requirement = row_requirement(sequence, *profile, request.cells[cell].composition.name);
        profiled.values.resize(lanes);
        needs_ = policy::merged(needs_, part.needs());
      }
      if (part.spec->uses_scores) {
        const bool oracle = static_cast<bool>(eviction_group.eviction->spec->make_oracle);
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
  const auto unit = [&](std::size_t lane, std::size_t n_lanes) {
    const auto head = group.first_head + static_cast<std::uint32_t>(lane);
    return cache_unit(model, group.layer, head, static_cast<std::uint32_t>(n_lanes), request_->seed,
                      request_->tables);
  };
  const std::size_t first = std::size_t{group.layer} * model.n_kv_heads + group.first_head;
  struct Subscribed {
    std::unique_ptr<policy::PromptObserver> observer;
    std::size_t lane, n_lanes;
    RowRequirement requirement;
    std::function<void()> finish;  // stores what was measured
  };
  std::vector<Subscribed> subscribed;
  for (auto& [text, profiled] : profiled_) {
    const auto allocation = profiled.part->spec->make_allocation(profiled.part->params);
    for (std::size_t lane = 0; lane < group.n_lanes; ++lane) {
      auto profile = allocation->profile(unit(lane, 1));
      const policy::Profile* measured = profile.get();
      std::vector<double>& out = profiled.values[first + lane];
      subscribed.push_back({std::move(profile), lane, 1, profiled.requirement,
                            [measured, &out] { out = measured->values(); }});
    }
  }
  for (auto& [text, scored] : scored_) {
    const EvictionGroup& eviction_group = *scored.eviction_group;
    const std::size_t n_lanes = eviction_group.layer_unit ? group.n_lanes : 1;
    for (std::size_t lane = 0; lane < group.n_lanes; lane += n_lanes) {
      auto eviction = eviction_group.eviction->make_eviction(unit(lane, n_lanes));
      const policy::Eviction* ranked = eviction.get();
      const std::span<std::vector<double>> out = std::span(scored.values).subspan(first + lane, n_lanes);
      subscribed.push_back({std::move(eviction), lane, n_lanes, eviction_group.requirement, [ranked, out] {
                              for (std::vector<double>& scores : out)
                                scores.assign(ranked->scores().begin(), ranked->scores().end());
                            }});
    }
  }
  for (auto& [text, of_oracle] : of_oracles_) {
    const EvictionGroup& eviction_group = *of_oracle.eviction_group;
    const std::size_t n_lanes = eviction_group.layer_unit ? group.n_lanes : 1;
    for (std::size_t lane = 0; lane < group.n_lanes; lane += n_lanes) {
      const policy::Part& part = *eviction_group.eviction;
      const auto oracle = part.spec->make_oracle(part.params, unit(lane, n_lanes));
      oracle->set_future(
          UnitFuture(tensors, lane, n_lanes, sequence_->first_measured(), decode_block(*sequence_)));
      std::fill_n(of_oracle.values.begin() + static_cast<std::ptrdiff_t>(first + lane), n_lanes,
                  oracle->losses());
    }
  }
  std::vector<Subscription> subscriptions;
  for (const Subscribed& one : subscribed)
    if (!one.requirement.empty())
      subscriptions.push_back({one.observer.get(), one.lane, one.n_lanes, one.requirement});
  replay_prompt(tensors, subscriptions, progress);
  for (const Subscribed& one : subscribed) {
    one.observer->finish_prompt(GroupTensors::PromptView(tensors, one.lane));
    one.finish();
  }
}

std::vector<std::vector<double>> AllocationPass::profiles(const policy::Part& allocation) const {
  const auto found = profiled_.find(allocation.text());
  return found == profiled_.end() ? PerLane{} : found->second.values;
}

std::vector<std::vector<double>> AllocationPass::losses(const policy::Part& oracle) const {
  const auto found = of_oracles_.find(oracle.text());
  return found == of_oracles_.end() ? PerLane{} : found->second.values;
}

std::vector<std::vector<double>> AllocationPass::scores(const policy::Part& eviction) const {
  const auto found = scored_.find(eviction.text());
  return found == scored_.end() ? PerLane{} : found->second.values;
}

}  // namespace kvsim::sim
