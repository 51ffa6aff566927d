#include "sim/step_oracle.hpp"

#include <algorithm>
#include <functional>

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

}  // namespace

void largest_shares(std::span<float> row, std::span<const std::size_t> counts, std::span<double> shares) {
  select(row, 0, counts);
  double sum = 0;
  std::size_t j = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (; j < counts[i]; ++j) sum += row[j];
    shares[i] = sum;
  }
  for (; j < row.size(); ++j) sum += row[j];
  for (double& share : shares) share = sum > 0 ? share / sum : 1.0;
}

}  // namespace kvsim::sim
