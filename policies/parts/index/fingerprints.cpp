#include "policies/parts/index/fingerprints.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "sim/base/rng.hpp"

namespace kvsim::policy {

std::vector<std::uint32_t> Fingerprints::nearest_first(std::span<const std::uint32_t> items,
                                                       const Bits& anchor) const {
  // Counting sort: there are few distinct distances.
  std::vector<std::size_t> distances(items.size()), next(n_bits_ + 2);
  for (std::size_t i = 0; i < items.size(); ++i) {
    distances[i] = distance(items[i], anchor);
    ++next[distances[i] + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<std::uint32_t> out(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) out[next[distances[i]]++] = items[i];
  return out;
}

Fingerprints::Bits Fingerprints::majority(std::span<const std::uint32_t> items) const {
  std::vector<std::size_t> ones(n_bits_);
  for (const std::uint32_t item : items)
    for (std::size_t bit = 0; bit < n_bits_; ++bit) ones[bit] += get(item, bit) ? 1 : 0;
  return make_bits(n_bits_, [&](std::size_t bit) { return 2 * ones[bit] > items.size(); });
}

SimHash::SimHash(std::size_t bits, std::size_t dim, std::uint64_t key) : bits_(bits), normals_(bits * dim) {
  for (std::size_t c = 0; c < dim; ++c)
    for (std::size_t b = 0; b < bits; ++b) normals_[c * bits + b] = normal(combine({key, b, c}));
}

std::uint64_t SimHash::operator()(std::span<const float> x) const {
  std::array<double, kMaxHashBits> side{};
  for (std::size_t c = 0; c < x.size(); ++c) {
    const double component = static_cast<double>(x[c]);
    const double* normals = normals_.data() + c * bits_;
    for (std::size_t b = 0; b < bits_; ++b) side[b] += component * normals[b];
  }
  std::uint64_t code = 0;
  for (std::size_t b = 0; b < bits_; ++b) code |= std::uint64_t{side[b] >= 0} << b;
  return code;
}

namespace {

/// Slots per block: a block's numbers fit the first-level cache, and its loops are plain reductions over
/// 32-bit numbers, which compilers vectorise.
constexpr std::size_t kBlock = 512;
using Number = std::uint32_t;
using Numbers = std::array<Number, kBlock>;
constexpr Number kNone = 0xffffffffU;    ///< more than any slot or position
constexpr Number kNewest = 0x7fffffffU;  ///< no position is larger

// Combine a slot's distances from several queries into one.
Number only_last(Number, Number last) {
  return last;
}
Number add(Number sum, Number distance) {
  return sum + distance;
}
Number nearer(Number nearest, Number distance) {
  return std::min(nearest, distance);
}

/// Sets distances[i] = combine(distances[i], distance of codes[i] from `query`).
template <auto combine>
void measure(std::span<const std::uint64_t> codes, std::uint64_t query, Numbers& distances) {
  for (std::size_t i = 0; i < codes.size(); ++i)
    distances[i] = combine(distances[i], static_cast<Number>(std::popcount(codes[i] ^ query)));
}

// The code below uses masks instead of conditions, because gcc 12 turns a condition into a jump and does not
// vectorise.

/// Measures the last query, then replaces each distance by its rank: 0 for slots that may not be chosen,
/// distance + 1 for the others. Returns the largest rank.
template <auto combine>
Number rank(std::span<const std::uint64_t> codes, std::uint64_t query, std::span<const Position> positions,
            Choosable choosable, Numbers& distances) {
  Number most = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const Number distance = combine(distances[i], static_cast<Number>(std::popcount(codes[i] ^ query)));
    const Number free = Number{positions[i] >= choosable.first} & Number{positions[i] < choosable.last};
    const Number rank = (distance + 1) & (0U - free);
    distances[i] = rank;
    most = std::max(most, rank);
  }
  return most;
}

Number rank(std::span<const std::uint64_t> codes, const HashedQuery& query,
            std::span<const Position> positions, Choosable choosable, Numbers& distances) {
  const std::uint64_t last = query.codes.back();
  if (query.codes.size() == 1) return rank<only_last>(codes, last, positions, choosable, distances);
  measure<only_last>(codes, query.codes.front(), distances);
  for (const std::uint64_t code : query.codes.subspan(1, query.codes.size() - 2)) {
    if (query.group == Group::mean)
      measure<add>(codes, code, distances);
    else
      measure<nearer>(codes, code, distances);
  }
  return query.group == Group::mean ? rank<add>(codes, last, positions, choosable, distances)
                                    : rank<nearer>(codes, last, positions, choosable, distances);
}

/// Returns the least number that `of` gives to a slot of rank `most`.
template <class Of>
Number least(std::size_t n, const Numbers& ranks, Number most, Of of) {
  Number out = kNone;
  for (std::size_t i = 0; i < n; ++i) {
    const Number other = 0U - Number{ranks[i] != most};
    out = std::min(out, of(i) | other);
  }
  return out;
}

}  // namespace

std::size_t farthest(std::span<const std::uint64_t> codes, std::span<const Position> positions,
                     const HashedQuery& query, Choosable choosable, Tie tie) {
  Numbers ranks{};
  Number most = 1, preferred = kNone;  // no slot of rank 1 or more found yet
  for (std::size_t begin = 0; begin < codes.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, codes.size() - begin);
    const std::span<const Position> at = positions.subspan(begin, n);
    const Number here = rank(codes.subspan(begin, n), query, at, choosable, ranks);
    if (here < most || (here == most && tie == Tie::slot && preferred != kNone)) continue;
    const auto position = [&](std::size_t i) { return static_cast<Number>(at[i]); };
    const Number candidate =
        tie == Tie::slot
            ? least(n, ranks, here, [&](std::size_t i) { return static_cast<Number>(begin + i); })
        : tie == Tie::oldest ? least(n, ranks, here, position)
                             : least(n, ranks, here, [&](std::size_t i) { return kNewest - position(i); });
    preferred = here > most ? candidate : std::min(preferred, candidate);
    most = here;
  }
  if (preferred == kNone) return codes.size();
  if (tie == Tie::slot) return preferred;
  const auto chosen = static_cast<Position>(tie == Tie::oldest ? preferred : kNewest - preferred);
  return static_cast<std::size_t>(std::find(positions.begin(), positions.end(), chosen) - positions.begin());
}

}  // namespace kvsim::policy
