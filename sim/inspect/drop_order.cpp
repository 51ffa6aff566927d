#include "sim/inspect/drop_order.hpp"

#include <algorithm>

#include "sim/base/order.hpp"

namespace kvsim::sim {

std::vector<double> attention_in_drop_order(std::span<const double> attention,
                                            std::span<const double> scores) {
  const std::vector<std::size_t> order = least_first(scores);
  std::vector<double> out(order.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    double sum = 0;
    for (end = first; end < order.size() && scores[order[end]] == scores[order[first]]; ++end)
      sum += attention[order[end]];
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(first),
              out.begin() + static_cast<std::ptrdiff_t>(end), sum / static_cast<double>(end - first));
  }
  return out;
}

std::vector<double> least_attention_first(std::span<const double> attention) {
  std::vector<double> out(attention.begin(), attention.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<double> cumulative_loss(std::span<const double> dropped) {
  std::vector<double> out{0};
  for (const double a : dropped) out.push_back(out.back() + a);
  return out;
}

double excess_area(std::span<const double> dropped, std::span<const double> least) {
  double area = 0, gap = 0;
  for (std::size_t m = 0; m < dropped.size(); ++m) {
    gap += dropped[m] - least[m];
    area += std::max(gap, 0.0);  // a gap below 0 is rounding: no order loses less than the least
  }
  return area;
}

}  // namespace kvsim::sim
