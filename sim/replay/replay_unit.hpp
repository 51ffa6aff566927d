#pragma once
/// One unit of a lane group under one eviction policy, fed from a trace.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/feed/unit_driver.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {

using Cache = ManagedCache<IndexStore>;

class ReplayUnit {
 public:
  /// Covers lanes [first_lane, first_lane + n_lanes) of the group that `tensors` were read for. `length`:
  /// tokens that its caches will see in all.
  ReplayUnit(const EvictionGroup& eviction_group, const GroupTensors& tensors, std::size_t first_lane,
             std::size_t n_lanes, std::unique_ptr<policy::Eviction> eviction, const policy::CacheUnit& unit,
             std::size_t length);

  const EvictionGroup& eviction_group() const { return *eviction_group_; }
  policy::Eviction& eviction() { return driver_.eviction(); }
  const policy::Eviction& eviction() const { return driver_.eviction(); }
  std::size_t first_lane() const { return first_lane_; }
  std::size_t n_lanes() const { return n_lanes_; }
  bool covers(std::size_t lane) const { return lane >= first_lane_ && lane < first_lane_ + n_lanes_; }
  UnitDriver<IndexStore>& driver() { return driver_; }
  std::vector<Cache>& caches() { return driver_.caches(); }
  const std::vector<Cache>& caches() const { return driver_.caches(); }

  /// Returns the policy's subscription to the prompt.
  Subscription subscription() {
    return {&driver_.eviction(), first_lane_, n_lanes_, eviction_group_->requirement};
  }
  /// Begins a cache for a cell. With `log`, its intervals are recorded for decisions.
  void start(std::size_t cell, std::size_t budget, bool log);
  /// From here on the numbers of the cache are what a codec of `representation`, which has seen the prompt,
  /// makes of them. The prompt is over. `observes`: as StoredCache says. `again`: the last prompt token as a
  /// running model has fed it again, if it has.
  void store(Cache& cache, const policy::Representation& representation, bool observes,
             const policy::StorageShape& of_lane, const Token* again = nullptr);
  /// Admits the token at `position` to the cache. `step` is 0 within the prompt.
  void admit(Cache& cache, std::size_t position, std::uint32_t step) {
    driver_.admit(cache, token(position), step);
  }
  void ask_again(Cache& cache, std::size_t position) { driver_.ask_again(cache, token(position)); }
  /// Shows the decoder of the cache the step of the token that joined last. `rows` must cover its position if
  /// the policy needs decode rows.
  void attended(Cache& cache, std::size_t position, const RowBlock& rows);

 private:
  Token token(std::size_t position) const;

  const EvictionGroup* eviction_group_;
  const GroupTensors* tensors_;
  std::size_t first_lane_, n_lanes_, length_;
  UnitDriver<IndexStore> driver_;
  SlotGather gather_;
};

/// Returns the future that an oracle gets of lanes [first_lane, first_lane + n_lanes). It must outlive the
/// units.
using FutureOfLanes = std::function<const policy::Future&(std::size_t first_lane, std::size_t n_lanes)>;

/// Makes the units of an eviction group in a lane group, in order of their lanes. `length` 0: the sequence's.
std::vector<ReplayUnit> replay_units(const EvictionGroup& eviction_group, const GroupTensors& tensors,
                                     std::uint64_t seed, const policy::Tables* tables,
                                     const FutureOfLanes& future, std::size_t length = 0);

// The representations, or the selections, of the units of a lane group: one object per part and unit
// observes the prompt for all caches of the unit that use it.

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

/// The representations of the units of a lane group.
class RepresentedUnits {
 public:
  RepresentedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                   const policy::Tables* tables);

  /// Makes the representations of the unit's cells.
  void add(const ReplayUnit& unit) { parts_.add(unit); }
  /// Appends what they observe of the prompt.
  void subscribe(std::vector<Subscription>& subscriptions) const { parts_.subscribe(subscriptions); }
  /// After the prompt: shows it to representations that store two layers together.
  void finish_pairs();
  /// The layer that the unit's is stored together with in `cell`; none for most cells.
  std::optional<int> partner(const ReplayUnit& unit, std::size_t cell) const;
  /// Both layers have processed the token that joined the cache last, at `position`. Nothing for a cell that
  /// stores this layer alone.
  void pair(const ReplayUnit& unit, Cache& cache, std::size_t position) const;
  /// The prompt is over: from here on the numbers of a cache of `cell` are what a codec makes of them.
  /// Nothing for a cell without a representation. `again`: as in ReplayUnit::store().
  void store(ReplayUnit& unit, Cache& cache, std::size_t cell, const Token* again = nullptr) const;

 private:
  const GroupTensors* tensors_;
  UnitParts<policy::Representation> parts_;
  std::map<int, GroupTensors> partners_;  ///< the same lanes of other layers, by layer
};

/// The selections of the units of a lane group, and what their selectors see of the recorded run.
class SelectedUnits {
 public:
  SelectedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                const policy::Tables* tables);

  /// Makes the selections of the unit's cells.
  void add(const ReplayUnit& unit) { parts_.add(unit); }
  /// Appends what they observe of the prompt.
  void subscribe(std::vector<Subscription>& subscriptions) const { parts_.subscribe(subscriptions); }
  /// After the prompt: reads the layers that choose for this one.
  void read_leaders();
  /// The layer that chooses for the unit's in `cell`; none for most cells.
  std::optional<int> leader(const ReplayUnit& unit, std::size_t cell) const;
  /// The prompt is over, and codecs have begun: from here on the queries of a cache of `cell` read what a
  /// selector names. Nothing for a cell without a selection. `tokens`: what the cache holds, where it is not
  /// what was recorded.
  void begin(const ReplayUnit& unit, Cache& cache, std::size_t cell,
             const policy::StoredTokens* tokens = nullptr) const;
  /// Chooses what the queries at `position` read of the cache, if it has a selector. `rows` covers the
  /// position.
  void select(const ReplayUnit& unit, Cache& cache, std::size_t position, const RowBlock& rows) const;

 private:
  const GroupTensors& tensors_of(std::optional<int> leader) const {
    return leader ? leaders_.at(*leader) : *tensors_;
  }
  /// Shows `use` what the cache holds, as the selector sees it.
  template <class Use>
  void with_tokens(const ReplayUnit& unit, const Cache& cache, const GroupTensors& tensors, Use use) const;

  const GroupTensors* tensors_;
  UnitParts<policy::Selection> parts_;
  std::map<int, GroupTensors> leaders_;  ///< the same lanes of other layers, by layer
};

}  // namespace kvsim::sim
