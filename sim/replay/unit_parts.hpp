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

  UnitParts(const std::vector<PartGroup>& groups, const GroupTensors& tensors, std::uint64_t seed,
            const policy::Tables* tables, Make make)
      : groups_(&groups), tensors_(&tensors), seed_(seed), tables_(tables), make_(std::move(make)) {}

  /// Makes the unit's object of a part, unless it is there.
  void add(const ReplayUnit& unit, std::size_t number) {
    auto& known = parts_[key(unit, number)];
    if (known) return;
    const LaneGroup group = tensors_->group();
    known = make_(*(*groups_)[number].part,
                  cache_unit(tensors_->sequence().model(), group.layer,
                             group.first_head + static_cast<std::uint32_t>(unit.first_lane()),
                             static_cast<std::uint32_t>(unit.n_lanes()), seed_, tables_));
  }
  T& at(const ReplayUnit& unit, std::size_t number) const { return *parts_.at(key(unit, number)); }
  /// Appends what they observe of the prompt.
  void subscribe(std::vector<Subscription>& subscriptions) const {
    for (const auto& [of, part] : parts_)
      subscriptions.push_back({part.get(), of.first_lane, of.n_lanes, (*groups_)[of.number].requirement});
  }
  const PartGroup& group(std::size_t number) const { return (*groups_)[number]; }
  const std::map<PartOfUnit, std::unique_ptr<T>>& all() const { return parts_; }

 private:
  static PartOfUnit key(const ReplayUnit& unit, std::size_t number) {
    return {number, unit.first_lane(), unit.n_lanes()};
  }

  const std::vector<PartGroup>* groups_;
  const GroupTensors* tensors_;
  std::uint64_t seed_;
  const policy::Tables* tables_;
  Make make_;
  std::map<PartOfUnit, std::unique_ptr<T>> parts_;
};

}  // namespace kvsim::sim
