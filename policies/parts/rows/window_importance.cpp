#include "policies/parts/rows/window_importance.hpp"

namespace kvsim::policy {

void WindowImportance::finish_prompt(const Prompt& prompt) {
  w_.clear();
  if (prompt.length() <= window_) return;
  std::vector<double> mean = sums_.mean();
  mean.resize(prompt.length() - window_);
  for (double& x : mean) x /= static_cast<double>(window_);
  w_ = pooled(pooling_, mean);
}

}  // namespace kvsim::policy
