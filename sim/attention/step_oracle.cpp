#include "sim/attention/step_oracle.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

namespace kvsim::sim {
namespace {

/// Moves the largest counts[i] - base entries of `row` to its front, for every i: quickselect on the middle
/// count, then both sides, so T log(counts) instead of a sort.
void select(std::span<float> row, std::size_t base, std::span<const std::size_t> counts) {
  if (counts.empty() || row.size() < 2) return;
  const std::size_t middle = counts.size() / 2;
  const std::size_t cut = counts[middle] - base;
  if (cut > 0 && cut < row.size())
    std::nth_element(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(cut), row.end(),
                     std::greater<>());
  select(row.first(cut), base, counts.first(middle));
  select(row.subspan(cut), base + cut, counts.subspan(middle + 1));
}

/// Sums in fixed point do not depend on the order that selection leaves, which depends on the counts asked
/// together. Rows sum to the number of query heads at most, squares to its square: 128 heads fit.
constexpr double kFixedOne = 0x1p48;
std::int64_t fixed(double value) {
  return static_cast<std::int64_t>(value * kFixedOne);
}

}  // namespace

void largest_entries(std::span<float> row, std::span<const std::size_t> counts,
                     std::span<LargestEntries> out) {
  select(row, 0, counts);
  std::int64_t sum = 0, squares = 0;
  LargestEntries best{.least = std::numeric_limits<float>::infinity()};
  std::size_t j = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (; j < counts[i]; ++j) {
      const double a = row[j];
      sum += fixed(a);
      squares += fixed(a * a);
      if (row[j] == best.least) ++best.ties;
      if (row[j] < best.least) best.least = row[j], best.ties = 1;
    }
    out[i] = best;
    out[i].share = static_cast<double>(sum);
    out[i].squares = static_cast<double>(squares) / kFixedOne;
  }
  for (; j < row.size(); ++j) sum += fixed(row[j]);
  for (LargestEntries& entries : out)
    entries.share = sum > 0 ? entries.share / static_cast<double>(sum) : 1.0;
}

}  // namespace kvsim::sim
