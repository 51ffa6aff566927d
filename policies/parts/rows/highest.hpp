#pragma once
/// Picks the few highest by a score other than the ranking one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "policies/api/score_policy.hpp"

namespace kvsim::policy {

/// Returns the indices of the `count` largest `values` among those not `taken` (all of them if they are
/// fewer), in no particular order. Of equals the newer position is picked; with empty `positions` an index is
/// its position.
inline std::vector<std::size_t> highest(std::span<const double> values, std::span<const char> taken,
                                        std::size_t count, std::span<const Position> positions = {}) {
  struct Candidate {
    double value;
    Position position;
    std::uint32_t index;
  };
  std::vector<Candidate> free;
  free.reserve(values.size());
  for (std::uint32_t i = 0; i < values.size(); ++i)
    if (!taken[i])
      free.push_back({values[i], positions.empty() ? static_cast<Position>(i) : positions[i], i});
  count = std::min(count, free.size());
  std::nth_element(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count), free.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.value != b.value ? a.value > b.value : a.position > b.position;
                   });
  std::vector<std::size_t> out(count);
  std::transform(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count), out.begin(),
                 [](const Candidate& candidate) { return candidate.index; });
  return out;
}

/// Reserves places of a budget for the `count` positions of the highest values, as far as those that stay
/// already leave room: ScoredEviction::reserve().
inline void reserve_highest(std::span<const double> values, std::size_t count, std::size_t budget,
                            std::vector<char>& stays) {
  const auto held = static_cast<std::size_t>(std::count(stays.begin(), stays.end(), char{1}));
  const std::size_t room = std::min(budget, stays.size()) - held;
  for (const std::size_t position : highest(values, stays, std::min(count, room))) stays[position] = 1;
}

/// Spares the slots that are highest by another value from eviction. For policies without granularity.
class SparingDecoder : public ScoredDecoder {
 protected:
  using ScoredDecoder::ScoredDecoder;

  /// Evicts from a full unit as ScoredDecoder does, but from none of the `count` highest slots that are not
  /// protected, of which one may leave in any case.
  void evict_sparing(std::span<const double> values, std::size_t count, const Arrival& arrival,
                     std::vector<std::size_t>& victims) {
    std::vector<char> taken(arrival.slots.size());
    for (std::size_t slot = 0; slot < taken.size(); ++slot)
      taken[slot] = is_protected(arrival, arrival.slots[slot]);
    const auto free = static_cast<std::size_t>(std::count(taken.begin(), taken.end(), char{0}));
    count = std::min(count, free - std::min<std::size_t>(free, 1));
    const std::vector<std::size_t> spared = highest(values, taken, count, arrival.slots);
    std::vector<double> held;
    for (const std::size_t slot : spared)
      held.push_back(std::exchange(scores()[slot], std::numeric_limits<double>::infinity()));
    ScoredDecoder::evict(arrival, victims);
    for (std::size_t i = 0; i < spared.size(); ++i) scores()[spared[i]] = held[i];
  }
};

}  // namespace kvsim::policy
