#pragma once
/// Finds the code that is farthest from a query: the scan over a cache that hashing policies run at every
/// step.
#include <cstddef>
#include <cstdint>
#include <span>

#include "policies/api/eviction.hpp"
#include "policies/api/score_policy.hpp"

namespace kvsim::policy {

/// Codes to compare with: a single one, or one per query head. Distances from several are added (Group::mean;
/// the sum ranks like the mean), or the nearest decides (Group::max, of similarity).
struct HashedQuery {
  std::span<const std::uint64_t> codes;  ///< at least one
  Group group = Group::mean;
};

/// Slots whose position lies in [first, last) may be chosen.
struct Choosable {
  Position first = 0, last = 0;
};

/// Returns the slot with the largest Hamming distance among those that may be chosen; `tie` decides among
/// equals. Returns codes.size() if none may be chosen. `codes` and `positions` hold one entry per slot;
/// positions are distinct and >= 0; there are fewer than 2^31 slots. One pass over memory, 12 bytes per slot.
std::size_t farthest(std::span<const std::uint64_t> codes, std::span<const Position> positions,
                     const HashedQuery& query, Choosable choosable, Tie tie);

}  // namespace kvsim::policy
