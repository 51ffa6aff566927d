#pragma once
/// How long blocks stay in a cache, and how they are used there: times in seconds, as sums and as histograms.
#include <array>
#include <bit>
#include <cstdint>

namespace kvsim::prefix {

/// Counts of times by powers of two of milliseconds: bin 0 holds those below 1 ms, bin i those from 2^(i-1)
/// ms to below 2^i ms, the last one all that are longer.
struct Durations {
  static constexpr std::size_t kBins = 40;
  std::array<std::uint64_t, kBins> bins{};
  std::uint64_t count = 0;
  double sum_s = 0;

  void add(double seconds) {
    ++count;
    sum_s += seconds;
    const double ms = seconds * 1000;
    const std::size_t bin = ms < 1         ? 0
                            : ms >= 0x1p38 ? kBins - 1
                                           : std::bit_width(static_cast<std::uint64_t>(ms));
    ++bins[bin];
  }
};

struct Residency {
  Durations lifetime{};   ///< from being stored to being evicted, of evicted blocks
  Durations idle{};       ///< from the last use to being evicted
  Durations reuse_gap{};  ///< from one use to the next, of resident blocks
};

}  // namespace kvsim::prefix
