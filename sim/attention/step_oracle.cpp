#include "sim/attention/step_oracle.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

namespace kvsim::sim {
namespace {

/// Moves the largest counts[i] - base entries of `row` to its front, for every i. Quickselect runs on the
/// middle count and then on both sides, which takes T log(counts) instead of a sort.
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

/// Converts to fixed point, in which a sum does not depend on its order: the order that the selection leaves
/// depends on which counts are selected together. A row sums to at most the number of query heads, its
/// squares to at most the square of that number: 128 heads fit.
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
