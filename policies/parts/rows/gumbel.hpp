#pragma once
/// Gumbel noise as a function of its key (sim/base/rng.hpp).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sim/base/rng.hpp"

namespace kvsim::policy {

/// Returns an exponential draw of mean 1, never 0.
inline double exponential(std::uint64_t key) {
  return std::max(-std::log(1.0 - uniform01(key)), std::numeric_limits<double>::min());
}

/// Returns a standard Gumbel draw. The largest of x_i + gumbel_i is i with probability softmax(x)_i, and the
/// n largest are a sample of n without replacement.
inline double gumbel(std::uint64_t key) {
  return -std::log(exponential(key));
}

}  // namespace kvsim::policy
