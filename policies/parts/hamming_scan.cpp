#include "policies/parts/hamming_scan.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace kvsim::policy {
namespace {

/// Slots that are worked on together: a block's numbers stay in the first cache, and its loops are plain
/// reductions over 32-bit numbers, which compilers turn into vector instructions.
constexpr std::size_t kBlock = 512;
using Numbers = std::array<std::uint32_t, kBlock>;

void measure(std::span<const std::uint64_t> codes, const HashedQuery& query, Numbers& distances) {
  const auto each = [&](std::uint64_t code, auto combine) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      distances[i] = combine(distances[i], static_cast<std::uint32_t>(std::popcount(codes[i] ^ code)));
  };
  using Number = std::uint32_t;
  each(query.codes.front(), [](Number, Number distance) { return distance; });
  for (const std::uint64_t code : query.codes.subspan(1)) {
    if (query.group == Group::mean)
      each(code, [](Number sum, Number distance) { return sum + distance; });
    else
      each(code, [](Number nearest, Number distance) { return std::min(nearest, distance); });
  }
}

// In both, masks instead of conditions: from a condition gcc 12 makes a jump, and no vector instruction.

/// Distances become 0 where nobody may be chosen and one more elsewhere; returns the largest.
std::uint32_t rank(std::span<const Position> positions, Choosable choosable, Numbers& distances) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const bool free = (positions[i] >= choosable.first) & (positions[i] < choosable.last);
    const std::uint32_t rank = (distances[i] + 1) & (0U - std::uint32_t{free});
    distances[i] = rank;
    most = std::max(most, rank);
  }
  return most;
}

/// Least number that `of` gives to a slot of rank `most`.
template <class Of>
std::uint32_t least(std::size_t n, const Numbers& ranks, std::uint32_t most, Of of) {
  std::uint32_t out = 0xffffffffU;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t other = 0U - std::uint32_t{ranks[i] != most};
    out = std::min(out, of(i) | other);
  }
  return out;
}

constexpr std::uint32_t kNewest = 0x7fffffffU;

}  // namespace

std::size_t farthest(std::span<const std::uint64_t> codes, std::span<const Position> positions,
                     const HashedQuery& query, Choosable choosable, Tie tie) {
  Numbers ranks{};
  std::uint32_t most = 1, preferred = 0xffffffffU;  // nobody of rank 1 yet
  for (std::size_t begin = 0; begin < codes.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, codes.size() - begin);
    const std::span<const Position> at = positions.subspan(begin, n);
    measure(codes.subspan(begin, n), query, ranks);
    const std::uint32_t here = rank(at, choosable, ranks);
    if (here < most || (here == most && tie == Tie::slot && preferred != 0xffffffffU)) continue;
    const auto position = [&](std::size_t i) { return static_cast<std::uint32_t>(at[i]); };
    const std::uint32_t candidate =
        tie == Tie::slot
            ? least(n, ranks, here, [&](std::size_t i) { return static_cast<std::uint32_t>(begin + i); })
        : tie == Tie::oldest ? least(n, ranks, here, position)
                             : least(n, ranks, here, [&](std::size_t i) { return kNewest - position(i); });
    preferred = here > most ? candidate : std::min(preferred, candidate);
    most = here;
  }
  if (preferred == 0xffffffffU) return codes.size();
  if (tie == Tie::slot) return preferred;
  const auto chosen = static_cast<Position>(tie == Tie::oldest ? preferred : kNewest - preferred);
  return static_cast<std::size_t>(std::find(positions.begin(), positions.end(), chosen) - positions.begin());
}

}  // namespace kvsim::policy
