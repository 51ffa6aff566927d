#include "policies/parts/codes/entropy_size.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace kvsim::policy {
namespace {

using Counts = std::array<std::size_t, 256>;

Counts counts_of(std::span<const std::int8_t> symbols) {
  Counts out{};
  for (const std::int8_t symbol : symbols) ++out[static_cast<std::uint8_t>(symbol)];
  return out;
}

}  // namespace

std::uint64_t entropy_coded_bytes(std::span<const std::int8_t> symbols, std::size_t run) {
  const Counts all = counts_of(symbols);
  std::uint64_t bytes = 0;
  for (std::size_t first = 0; first < symbols.size(); first += run) {
    const Counts of_run = counts_of(symbols.subspan(first, std::min(run, symbols.size() - first)));
    double bits = 0;
    for (std::size_t s = 0; s < all.size(); ++s)
      if (of_run[s] > 0)
        bits += static_cast<double>(of_run[s]) *
                std::log2(static_cast<double>(symbols.size()) / static_cast<double>(all[s]));
    // Rounding of the sum does not make a byte.
    bytes += static_cast<std::uint64_t>(std::ceil(bits / 8 - 1e-9));
  }
  return bytes;
}

}  // namespace kvsim::policy
