#pragma once
/// Places in the order of what stands there. Of equals the earlier place comes first.
#include <algorithm>
#include <concepts>
#include <functional>
#include <numeric>
#include <ranges>
#include <vector>

namespace kvsim {

/// The places 0 to n - 1 by what `key` returns of them: the least first, or the one that `before` says.
template <std::integral Place = std::size_t, class Key, class Before = std::ranges::less>
std::vector<Place> least_first(std::size_t n, const Key& key, Before before = {}) {
  std::vector<Place> order(n);
  std::iota(order.begin(), order.end(), Place{0});
  std::ranges::stable_sort(order, before, key);
  return order;
}

template <std::integral Place = std::size_t, class Key>
std::vector<Place> largest_first(std::size_t n, const Key& key) {
  return least_first<Place>(n, key, std::ranges::greater());
}

/// The places of a list by what it holds.
template <std::integral Place = std::size_t, std::ranges::random_access_range List>
std::vector<Place> least_first(const List& list) {
  return least_first<Place>(std::ranges::size(list), [&](Place at) { return list[at]; });
}

template <std::integral Place = std::size_t, std::ranges::random_access_range List>
std::vector<Place> largest_first(const List& list) {
  return largest_first<Place>(std::ranges::size(list), [&](Place at) { return list[at]; });
}

}  // namespace kvsim
