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

void RepresentedUnits::store(ReplayUnit& unit, Cache& cache, std::size_t cell) const {
  const std::size_t number = plan_->cells[cell].representation;
  if (number == Plan::kExact) return;
  policy::StorageShape of_lane = storage_shape(tensors_->sequence());
  of_lane.layer = tensors_->group().layer;
  unit.store(cache, *representations_.at({number, unit.first_lane(), unit.n_lanes()}),
             plan_->representation_groups[number].needs.decode_rows, of_lane);
}

}  // namespace kvsim::sim
