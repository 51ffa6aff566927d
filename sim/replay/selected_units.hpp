#pragma once
/// The selections of the units of a lane group, and what their selectors see of the recorded run.
#include <map>
#include <optional>
#include <vector>

#include "sim/replay/unit_parts.hpp"

namespace kvsim::sim {

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
