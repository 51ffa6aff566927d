#pragma once
/// Closes up per-slot state of a decoder when several tokens are evicted at once.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// Removes the entries of every victim but the first, whose slot the arriving token takes, as the feeder does
/// with the slots. `per_slot` holds `width` values per slot.
template <class T>
void close_up(std::vector<T>& per_slot, std::span<const std::size_t> victims, std::size_t width = 1) {
  if (victims.size() < 2) return;
  std::vector<std::size_t> gone(victims.begin() + 1, victims.end());
  std::sort(gone.begin(), gone.end());
  const std::size_t slots = per_slot.size() / width;
  std::size_t to = gone.front();
  for (std::size_t from = to, next = 0; from < slots; ++from) {
    if (next < gone.size() && gone[next] == from) {
      ++next;
      continue;
    }
    std::copy_n(per_slot.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                per_slot.begin() + static_cast<std::ptrdiff_t>(to++ * width));
  }
  per_slot.resize(to * width);
}

}  // namespace kvsim::policy
