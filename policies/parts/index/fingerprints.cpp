#include "policies/parts/index/fingerprints.hpp"

#include <numeric>

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

}  // namespace kvsim::policy
