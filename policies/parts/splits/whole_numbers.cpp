#include "policies/parts/splits/whole_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy {

std::vector<std::size_t> largest_remainder(std::span<const double> ideal, std::size_t total) {
  std::vector<std::size_t> out(ideal.size());
  std::transform(ideal.begin(), ideal.end(), out.begin(),
                 [](double x) { return static_cast<std::size_t>(std::floor(x)); });
  const std::vector<std::size_t> order =
      largest_first(ideal.size(), [&](std::size_t i) { return ideal[i] - static_cast<double>(out[i]); });
  std::size_t given = std::accumulate(out.begin(), out.end(), std::size_t{0});
  // A sum of doubles can end just above a whole number: then the smallest remainders give one back each.
  while (given > total)
    for (auto item = order.rbegin(); item != order.rend(); ++item)
      if (given > total && out[*item] > 0) --out[*item], --given;
  for (std::size_t i = 0; given < total; ++i, ++given) ++out[order[i % order.size()]];
  return out;
}

std::vector<std::size_t> shared_out(std::span<const double> weights, std::size_t total, const Most& most) {
  std::vector<double> ideal(weights.begin(), weights.end());
  double sum = 0;
  for (const double weight : ideal) {
    if (!(weight >= 0) || std::isinf(weight)) bug("a share of a budget is negative or not finite");
    sum += weight;
  }
  if (!(sum > 0) || std::isinf(sum)) {
    std::fill(ideal.begin(), ideal.end(), 1.0);
    sum = static_cast<double>(ideal.size());
  }
  for (double& share : ideal) share = share / sum * static_cast<double>(total);
  std::vector<std::size_t> out = largest_remainder(ideal, total);
  std::size_t excess = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    excess += out[i] - std::min(out[i], most[i]);
    out[i] = std::min(out[i], most[i]);
  }
  spread(out, excess, most);
  return out;
}

void spread(std::span<std::size_t> n, std::size_t rest, const Most& most) {
  while (rest > 0) {
    const std::size_t before = rest;
    for (std::size_t i = 0; i < n.size(); ++i)
      if (rest > 0 && n[i] < most[i]) ++n[i], --rest;
    if (rest == before) bug("there is not room for " + std::to_string(rest) + " more tokens");
  }
}

std::size_t half_even(double x) {
  const double below = std::floor(x), rest = x - below;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2.0) != 0);
  return x <= 0 ? 0 : static_cast<std::size_t>(up ? below + 1 : below);
}

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
