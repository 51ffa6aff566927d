#pragma once
/// The representations of the units of a lane group: one object per representation and unit observes the
/// prompt for all caches of the unit that use it.
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

class RepresentedUnits {
 public:
  RepresentedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                   const policy::Tables* tables)
      : plan_(&plan), tensors_(&tensors), seed_(seed), tables_(tables) {}

  /// Makes the representations of the unit's cells.
  void add(const ReplayUnit& unit);
  /// Appends what they observe of the prompt.
  void subscribe(std::vector<Subscription>& subscriptions) const;
  /// After the prompt: shows it to representations that store two layers together.
  void finish_pairs();
  /// The layer that the unit's is stored together with in `cell`; none for most cells.
  std::optional<int> partner(const ReplayUnit& unit, std::size_t cell) const;
  /// Both layers have processed the token that joined the cache last, at `position`. Nothing for a cell that
  /// stores this layer alone.
  void pair(const ReplayUnit& unit, Cache& cache, std::size_t position) const;
  /// The prompt is over: from here on the numbers of a cache of `cell` are what a codec makes of them.
  /// Nothing for a cell without a representation.
  void store(ReplayUnit& unit, Cache& cache, std::size_t cell) const;

 private:
  struct Key {
    std::size_t number = 0;  ///< in Plan::representation_groups
    std::size_t first_lane = 0, n_lanes = 1;
    auto operator<=>(const Key&) const = default;
  };

  const Plan* plan_;
  const GroupTensors* tensors_;
  std::uint64_t seed_;
  const policy::Tables* tables_;
  std::map<Key, std::unique_ptr<policy::Representation>> representations_;
  std::map<int, GroupTensors> partners_;  ///< the same lanes of other layers, by layer
};

}  // namespace kvsim::sim
