#pragma once
/// Percentiles as values that occurred.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace kvsim {

/// The least of `ascending` values, of which there is one at least, that `share` in (0, 1] of them do not
/// exceed.
inline double nearest_rank(std::span<const double> ascending, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(ascending.size())));
  return ascending[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace kvsim
