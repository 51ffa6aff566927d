#pragma once
/// Rotary positions that count what the cache holds instead of what the text has.
///
/// Attention depends on the distance between query and key alone. Where positions are counted in the cache, a
/// key is nearer by as many positions as were dropped between it and the query: it is rotated forward by that
/// many, and the query stays as it is. A key behind which nothing was dropped is not touched, so that without
/// evictions every kind of position gives the same bits. The rotation of the cached key is the same as
/// rotating the key before RoPE to the new position; both are computed in float.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::sim {

/// For each of the attended positions, which the query's own, the largest, is one of: positions between it
/// and the query that are not attended.
void dropped_between(std::span<const policy::Position> attended, std::vector<std::uint32_t>& shifts);

/// For each position below `end`: positions between it and `end` that are not among `kept`, which are below
/// `end` and in any order.
std::vector<std::uint32_t> dropped_before(std::span<const policy::Position> kept, std::size_t end);

/// Rotates keys by whole positions.
class KeyRotation {
 public:
  /// For shifts below `most`. The rotation's attention factor is in the keys already.
  KeyRotation(const Rotary& rotary, std::size_t most);
  /// `key` and `out` have all components of a key; `shift` is below `most`.
  void rotate(std::span<const float> key, std::uint32_t shift, float* out) const;

 private:
  std::size_t pairs_, begin_;  // begin_: the first component that turns
  bool interleaved_;
  std::vector<float> cosine_, sine_;  // [most, pairs]
};

}  // namespace kvsim::sim
