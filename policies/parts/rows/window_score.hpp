#pragma once
/// SnapKV's score (arXiv 2404.14469): the attention of the last prompt rows, smoothed along positions.
#include <vector>

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy {

/// `sums`: over the last `window` rows of a prompt of `length`. Returns, for positions before the window,
/// their means over these rows, pooled within each query head, then reduced over the heads; for the window's
/// own positions 0.
std::vector<double> window_score(const ColumnSums& sums, std::size_t window, std::size_t length,
                                 const Pooling& pooling, Group group);

/// An eviction by such scores, which has the parameters window, pool and group. The window is protected and
/// needs no score.
class WindowScored : public ScoredEviction {
 public:
  WindowScored(const Params& params, const CacheUnit& unit);

  std::size_t prompt_rows() const final { return window_; }
  void observe(const PromptRows& rows) final { sums_.add(rows); }

 protected:
  std::vector<double> score(const Prompt& prompt) override;

 private:
  std::size_t window_;
  Pooling pooling_;
  Group group_;
  ColumnSums sums_;
};

}  // namespace kvsim::policy
