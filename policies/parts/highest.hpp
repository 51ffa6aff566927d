#pragma once
/// Picks the few highest by a score other than the ranking one.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Returns the indices of the `count` largest `values` among those not `taken` (all of them if they are
/// fewer), in no particular order. Of equals the newer position is picked; with empty `positions` an index is
/// its position.
inline std::vector<std::size_t> highest(std::span<const double> values, std::span<const char> taken,
                                        std::size_t count, std::span<const Position> positions = {}) {
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!taken[i]) free.push_back(i);
  count = std::min(count, free.size());
  const auto before = [&](std::size_t a, std::size_t b) {
    if (values[a] != values[b]) return values[a] > values[b];
    return positions.empty() ? a > b : positions[a] > positions[b];
  };
  std::nth_element(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count), free.end(), before);
  free.resize(count);
  return free;
}

}  // namespace kvsim::policy
