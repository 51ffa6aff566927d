#include "sim/replay/represented_units.hpp"

#include "sim/replay/budget.hpp"

namespace kvsim::sim {

void RepresentedUnits::add(const ReplayUnit& unit) {
  for (const std::size_t cell : unit.eviction_group().cells) {
    const std::size_t number = plan_->cells[cell].representation;
    if (number == Plan::kExact) continue;
    auto& known = representations_[{number, unit.first_lane(), unit.n_lanes()}];
    if (known) continue;
    const LaneGroup group = tensors_->group();
    known = plan_->representation_groups[number].representation->make_representation(
        cache_unit(tensors_->sequence().model(), group.layer,
                   group.first_head + static_cast<std::uint32_t>(unit.first_lane()),
                   static_cast<std::uint32_t>(unit.n_lanes()), seed_, tables_));
  }
}

void RepresentedUnits::subscribe(std::vector<Subscription>& subscriptions) const {
  for (const auto& [of, representation] : representations_)
    subscriptions.push_back({representation.get(), of.first_lane, of.n_lanes,
                             plan_->representation_groups[of.number].requirement});
}

std::optional<int> RepresentedUnits::partner(const ReplayUnit& unit, std::size_t cell) const {
  const std::size_t number = plan_->cells[cell].representation;
  if (number == Plan::kExact) return {};
  return representations_.at({number, unit.first_lane(), unit.n_lanes()})->partner();
}

void RepresentedUnits::finish_pairs() {
  for (const auto& [of, representation] : representations_) {
    const std::optional<int> layer = representation->partner();
    if (!layer) continue;
    LaneGroup there = tensors_->group();
    there.layer = static_cast<std::uint32_t>(*layer);
    const auto known = partners_.try_emplace(*layer, tensors_->sequence(), there, policy::Needs{}).first;
    representation->finish_pair(GroupTensors::PromptView(*tensors_, of.first_lane),
                                GroupTensors::PromptView(known->second, of.first_lane));
  }
}

void RepresentedUnits::pair(const ReplayUnit& unit, Cache& cache, std::size_t position) const {
  const std::optional<int> layer = partner(unit, cache.cell);
  if (!layer) return;
  const GroupTensors& there = partners_.at(*layer);
  cache.stored->pair(cache.own_slot, there.token_keys(unit.first_lane(), unit.n_lanes(), position),
                     there.token_values(unit.first_lane(), unit.n_lanes(), position));
}

void RepresentedUnits::store(ReplayUnit& unit, Cache& cache, std::size_t cell) const {
  const std::size_t number = plan_->cells[cell].representation;
  if (number == Plan::kExact) return;
  policy::StorageShape of_lane = storage_shape(tensors_->sequence());
  of_lane.layer = tensors_->group().layer;
  unit.store(cache, *representations_.at({number, unit.first_lane(), unit.n_lanes()}),
             plan_->representation_groups[number].needs.decode_rows, of_lane);
}

}  // namespace kvsim::sim
