#include "sim/replay/survey.hpp"

#include <algorithm>
#include <functional>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/attention/unit_future.hpp"

namespace kvsim::sim {

Survey::Survey(const trace::Sequence& sequence, const Request& request, const Plan& plan)
    : sequence_(&sequence), request_(&request) {
  const std::size_t lanes = std::size_t{sequence.model().n_layers} * sequence.model().n_kv_heads;
  const policy::Unit lane = unit_of(sequence.model(), 0, 0, 1, request.seed);
  for (const Family& family : plan.families) {
    for (const std::size_t cell : family.cells) {
      const policy::Part& part = request.cells[cell].composition.allocation;
      const auto allocation = part.spec->make_allocation(part.params);
      if (const auto profile = allocation->profile(lane)) {
        Profiled& profiled = profiled_[part.text()];
        profiled.part = &part;
        profiled.viewing = viewing(sequence, *profile, request.cells[cell].composition.name);
        profiled.values.resize(lanes);
        needs_ = policy::merged(needs_, part.needs());
      }
      if (part.spec->uses_scores) {
        const bool oracle = static_cast<bool>(family.eviction->spec->make_oracle);
        OfFamily& wanted = (oracle ? foreseen_ : scored_)[family.eviction->text()];
        wanted.family = &family;
        wanted.values.resize(lanes);
        needs_.queries = needs_.queries || oracle;
        layer_groups_ = layer_groups_ || family.layer_unit;
        needs_ = policy::merged(needs_, family.needs);
      }
    }
  }
}

std::size_t Survey::most_rows() const {
  std::size_t most = 0;
  for (const auto& [text, profiled] : profiled_) most = std::max(most, profiled.viewing.rows);
  for (const auto& [text, scored] : scored_) most = std::max(most, scored.family->viewing.rows);
  return most;
}

std::vector<LaneGroup> Survey::groups() const {
  return lane_groups(sequence_->model(), layer_groups_);
}

std::uint64_t Survey::work() const {
  if (empty()) return 0;
  return std::uint64_t{sequence_->model().n_layers} * sequence_->model().n_q_heads *
         (sequence_->prompt_length() - first_prompt_row(*sequence_, most_rows()));
}

void Survey::run(Workers& workers, Progress& progress) {
  if (empty()) return;
  const std::vector<LaneGroup> all = groups();
  workers.run(all.size(), [&](std::size_t i) { run_group(all[i], progress); });
}

void Survey::run_group(LaneGroup group, Progress& progress) {
  const trace::Model& model = sequence_->model();
  const GroupTensors tensors(*sequence_, group, needs_);
  const auto unit = [&](std::size_t lane, std::size_t n_lanes) {
    const auto head = group.first_head + static_cast<std::uint32_t>(lane);
    return unit_of(model, group.layer, head, static_cast<std::uint32_t>(n_lanes), request_->seed,
                   request_->tables);
  };
  const std::size_t first = std::size_t{group.layer} * model.n_kv_heads + group.first_head;
  struct Watched {
    std::unique_ptr<policy::PromptObserver> observer;
    std::size_t lane, n_lanes;
    Viewing viewing;
    std::function<void()> finish;  // stores what was measured
  };
  std::vector<Watched> watched;
  for (auto& [text, profiled] : profiled_) {
    const auto allocation = profiled.part->spec->make_allocation(profiled.part->params);
    for (std::size_t lane = 0; lane < group.n_lanes; ++lane) {
      auto profile = allocation->profile(unit(lane, 1));
      const policy::Profile* measured = profile.get();
      std::vector<double>& out = profiled.values[first + lane];
      watched.push_back(
          {std::move(profile), lane, 1, profiled.viewing, [measured, &out] { out = measured->values(); }});
    }
  }
  for (auto& [text, scored] : scored_) {
    const Family& family = *scored.family;
    const std::size_t n_lanes = family.layer_unit ? group.n_lanes : 1;
    for (std::size_t lane = 0; lane < group.n_lanes; lane += n_lanes) {
      auto eviction = family.eviction->make_eviction(unit(lane, n_lanes));
      const policy::Eviction* ranked = eviction.get();
      const std::span<std::vector<double>> out = std::span(scored.values).subspan(first + lane, n_lanes);
      watched.push_back({std::move(eviction), lane, n_lanes, family.viewing, [ranked, out] {
                           for (std::vector<double>& scores : out)
                             scores.assign(ranked->scores().begin(), ranked->scores().end());
                         }});
    }
  }
  for (auto& [text, foreseen] : foreseen_) {
    const Family& family = *foreseen.family;
    const std::size_t n_lanes = family.layer_unit ? group.n_lanes : 1;
    for (std::size_t lane = 0; lane < group.n_lanes; lane += n_lanes) {
      const policy::Part& part = *family.eviction;
      const auto oracle = part.spec->make_oracle(part.params, unit(lane, n_lanes));
      oracle->foresee(
          UnitFuture(tensors, lane, n_lanes, sequence_->first_measured(), decode_block(*sequence_)));
      std::fill_n(foreseen.values.begin() + static_cast<std::ptrdiff_t>(first + lane), n_lanes,
                  oracle->losses());
    }
  }
  std::vector<Watcher> watchers;
  for (const Watched& one : watched)
    if (!one.viewing.empty()) watchers.push_back({one.observer.get(), one.lane, one.n_lanes, one.viewing});
  show_prompt(tensors, watchers, progress);
  for (const Watched& one : watched) {
    one.observer->finish_prompt(GroupTensors::PromptView(tensors, one.lane));
    one.finish();
  }
}

std::vector<std::vector<double>> Survey::profiles(const policy::Part& allocation) const {
  const auto found = profiled_.find(allocation.text());
  return found == profiled_.end() ? PerLane{} : found->second.values;
}

std::vector<std::vector<double>> Survey::losses(const policy::Part& oracle) const {
  const auto found = foreseen_.find(oracle.text());
  return found == foreseen_.end() ? PerLane{} : found->second.values;
}

std::vector<std::vector<double>> Survey::scores(const policy::Part& eviction) const {
  const auto found = scored_.find(eviction.text());
  return found == scored_.end() ? PerLane{} : found->second.values;
}

}  // namespace kvsim::sim
