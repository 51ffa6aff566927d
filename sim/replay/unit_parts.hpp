#pragma once
/// The representations, or the selections, of the units of a lane group: one object per part and unit
/// observes the prompt for all caches of the unit that use it.
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

/// The lanes of a unit, and the number of its part in the plan.
struct PartOfUnit {
  std::size_t number = 0;
  std::size_t first_lane = 0, n_lanes = 1;
  auto operator<=>(const PartOfUnit&) const = default;
};

/// `T`: policy::Representation or policy::Selection.
template <class T>
class UnitParts {
 public:
  using Make = std::function<std::unique_ptr<T>(const policy::Part&, const policy::CacheUnit&)>;

  /// `number`: where a cell's plan says which of the groups its part is of.
  UnitParts(const Plan& plan, std::size_t Plan::CellPlan::*number, const std::vector<PartGroup>& groups,
            const GroupTensors& tensors, std::uint64_t seed, const policy::Tables* tables, Make make)
      : plan_(&plan),
        number_(number),
        groups_(&groups),
        tensors_(&tensors),
        seed_(seed),
        tables_(tables),
        make_(std::move(make)) {}

  /// Makes the unit's objects of its cells' parts, unless they are there.
  void add(const ReplayUnit& unit) {
    for (const std::size_t cell : unit.eviction_group().cells) {
      const PartGroup* part = group(cell);
      if (part == nullptr) continue;
      auto& known = parts_[key(unit, cell)];
      if (known) continue;
      const LaneGroup lanes = tensors_->group();
      known = make_(*part->part, cache_unit(tensors_->sequence().model(), lanes.layer,
                                            lanes.first_head + static_cast<std::uint32_t>(unit.first_lane()),
                                            static_cast<std::uint32_t>(unit.n_lanes()), seed_, tables_));
    }
  }
  /// Null: the cell has no such part.
  T* of(const ReplayUnit& unit, std::size_t cell) const {
    return group(cell) == nullptr ? nullptr : parts_.at(key(unit, cell)).get();
  }
  const PartGroup* group(std::size_t cell) const {
    const std::size_t number = plan_->cells[cell].*number_;
    return number == Plan::kNone ? nullptr : &(*groups_)[number];
  }
  /// Appends what they observe of the prompt.
  void subscribe(std::vector<Subscription>& subscriptions) const {
    for (const auto& [of, part] : parts_)
      subscriptions.push_back({part.get(), of.first_lane, of.n_lanes, (*groups_)[of.number].requirement});
  }
  const std::map<PartOfUnit, std::unique_ptr<T>>& all() const { return parts_; }

 private:
  PartOfUnit key(const ReplayUnit& unit, std::size_t cell) const {
    return {plan_->cells[cell].*number_, unit.first_lane(), unit.n_lanes()};
  }

  const Plan* plan_;
  std::size_t Plan::CellPlan::*number_;
  const std::vector<PartGroup>* groups_;
  const GroupTensors* tensors_;
  std::uint64_t seed_;
  const policy::Tables* tables_;
  Make make_;
  std::map<PartOfUnit, std::unique_ptr<T>> parts_;
};

}  // namespace kvsim::sim
