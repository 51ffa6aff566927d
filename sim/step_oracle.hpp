#pragma once
/// The per-step oracle: the most attention any method can retain with n keys, chosen anew at every step over
/// all keys so far, nothing ever lost: a bound for every method that reads n keys.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::sim {

/// For each n of `counts` (ascending, each <= row.size()) the share of the row's mass in its n largest
/// entries. Reorders `row`. `shares` has the size of `counts`.
void largest_shares(std::span<float> row, std::span<const std::size_t> counts, std::span<double> shares);

}  // namespace kvsim::sim
