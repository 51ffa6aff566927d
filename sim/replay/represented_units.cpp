#include "sim/replay/represented_units.hpp"

#include "sim/replay/budget.hpp"

namespace kvsim::sim {

RepresentedUnits::RepresentedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                                   const policy::Tables* tables)
    : tensors_(&tensors),
      parts_(plan, &Plan::CellPlan::representation, plan.representation_groups, tensors, seed, tables,
             [](const policy::Part& part, const policy::CacheUnit& unit) {
               return part.make_representation(unit);
             }) {}

std::optional<int> RepresentedUnits::partner(const ReplayUnit& unit, std::size_t cell) const {
  const policy::Representation* representation = parts_.of(unit, cell);
  return representation == nullptr ? std::nullopt : representation->partner();
}

void RepresentedUnits::finish_pairs() {
  for (const auto& [of, representation] : parts_.all()) {
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

void RepresentedUnits::store(ReplayUnit& unit, Cache& cache, std::size_t cell, const Token* again) const {
  policy::Representation* representation = parts_.of(unit, cell);
  if (representation == nullptr) return;
  policy::StorageShape of_lane = storage_shape(tensors_->sequence());
  of_lane.layer = tensors_->group().layer;
  unit.store(cache, *representation, parts_.group(cell)->needs.decode_rows, of_lane, again);
}

}  // namespace kvsim::sim
