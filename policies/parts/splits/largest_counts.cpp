#include "policies/parts/splits/largest_counts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/base/error.hpp"

namespace kvsim::policy {

std::vector<std::size_t> counts_of_largest(std::span<const std::vector<double>> lists, std::size_t n,
                                           std::size_t most) {
  struct Pick {
    double value;
    std::size_t list;
  };
  std::vector<Pick> picks;
  for (std::size_t list = 0; list < lists.size(); ++list) {
    std::vector<double> values = lists[list];
    if (std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); }))
      input_error("a score is not a number", "list " + std::to_string(list) + " of an allocation",
                  "The run holds values that are not finite.");
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(most, values.size()));
    std::nth_element(values.begin(), end, values.end(), std::greater<>());
    for (auto value = values.begin(); value != end; ++value) picks.push_back({*value, list});
  }
  const auto end = picks.begin() + static_cast<std::ptrdiff_t>(std::min(n, picks.size()));
  std::nth_element(picks.begin(), end, picks.end(), [](const Pick& a, const Pick& b) {
    return a.value != b.value ? a.value > b.value : a.list < b.list;
  });
  std::vector<std::size_t> out(lists.size());
  for (auto pick = picks.begin(); pick != end; ++pick) ++out[pick->list];
  return out;
}

}  // namespace kvsim::policy
