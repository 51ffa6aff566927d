#include "policies/parts/hamming_scan.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace kvsim::policy {
namespace {

/// Slots whose distances are worked out before they are compared: stays in the first cache.
constexpr std::size_t kBlock = 512;
using Distances = std::array<std::uint64_t, kBlock>;

void measure(std::span<const std::uint64_t> codes, const HashedQuery& query, Distances& out) {
  const std::uint64_t first = query.codes.front();
  for (std::size_t i = 0; i < codes.size(); ++i)
    out[i] = static_cast<std::uint64_t>(std::popcount(codes[i] ^ first));
  for (const std::uint64_t code : query.codes.subspan(1)) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const auto distance = static_cast<std::uint64_t>(std::popcount(codes[i] ^ code));
      out[i] = query.group == Group::mean ? out[i] + distance : std::min(out[i], distance);
    }
  }
}

/// Distance above, whom `tie` prefers below: the largest such number is the choice. 0: nobody may be chosen.
template <class Preference>
std::uint64_t largest(std::span<const Position> positions, const Distances& distances, Choosable choosable,
                      Preference preference) {
  std::uint64_t best = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::uint64_t key = distances[i] << 32 | preference(i);
    const bool free = positions[i] >= choosable.first && positions[i] < choosable.last;
    best = std::max(best, free ? key : 0);
  }
  return best;
}

constexpr std::uint32_t kLast = 0xffffffffU;

}  // namespace

std::size_t farthest(std::span<const std::uint64_t> codes, std::span<const Position> positions,
                     const HashedQuery& query, Choosable choosable, Tie tie) {
  Distances distances;
  std::uint64_t best = 0;
  for (std::size_t begin = 0; begin < codes.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, codes.size() - begin);
    measure(codes.subspan(begin, n), query, distances);
    const std::span<const Position> at = positions.subspan(begin, n);
    const auto look = [&](auto preference) {
      best = std::max(best, largest(at, distances, choosable, preference));
    };
    switch (tie) {
      case Tie::slot:
        look([&](std::size_t i) { return kLast - static_cast<std::uint32_t>(begin + i); });
        break;
      case Tie::oldest:
        look([&](std::size_t i) { return kLast - static_cast<std::uint32_t>(at[i]); });
        break;
      case Tie::newest:
        look([&](std::size_t i) { return static_cast<std::uint32_t>(at[i]) + 1U; });
    }
  }
  if (best == 0) return codes.size();
  const auto preference = static_cast<std::uint32_t>(best);
  if (tie == Tie::slot) return kLast - preference;
  const auto position = static_cast<Position>(tie == Tie::oldest ? kLast - preference : preference - 1U);
  return static_cast<std::size_t>(std::find(positions.begin(), positions.end(), position) -
                                  positions.begin());
}

}  // namespace kvsim::policy
