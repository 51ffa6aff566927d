#include "policies/parts/rows/window_rows.hpp"

#include <algorithm>

namespace kvsim::policy {

std::vector<double> window_score(const ColumnSums& sums, std::size_t window, std::size_t length,
                                 const Pooling& pooling, Group group) {
  std::vector<double> out(length);
  const std::size_t n_scored = length - std::min(window, length);
  for (std::size_t head = 0; head < sums.n_heads(); ++head) {
    const std::vector<double> smooth = pooled(pooling, sums.head(head).first(n_scored));
    for (std::size_t j = 0; j < n_scored; ++j)
      out[j] = group == Group::max ? std::max(out[j], smooth[j]) : out[j] + smooth[j];
  }
  const auto rows = static_cast<double>(std::min(window, length));
  const double summed = group == Group::max ? rows : rows * static_cast<double>(sums.n_heads());
  for (double& score : out) score /= summed;
  return out;
}

WindowScored::WindowScored(const Params& params, const CacheUnit& unit)
    : ScoredEviction(params, unit),
      window_(params.count("window")),
      pooling_(Pooling::parse(params.word("pool"))),
      group_(group_of(params)),
      sums_(unit.n_query_heads(), window_) {}

std::vector<double> WindowScored::score(const Prompt& prompt) {
  return window_score(sums_, window_, prompt.length(), pooling_, group_);
}

}  // namespace kvsim::policy
