#pragma once
/// The representations of the units of a lane group.
#include <map>
#include <optional>
#include <vector>

#include "sim/replay/unit_parts.hpp"

namespace kvsim::sim {

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

}  // namespace kvsim::sim
