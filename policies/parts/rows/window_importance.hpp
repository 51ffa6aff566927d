#pragma once
/// XKV's importance w of a lane's prompt, the vector behind R, R_avg and ISR (arXiv 2412.05896, section on w;
/// SnapKV's score): the mean over the last `window` rows and over the lane's query heads of the attention on
/// each earlier position, average-pooled over positions (zero padding counted in the divisor).
#include "policies/api/allocation.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy {

class WindowImportance final : public Profile {
 public:
  WindowImportance(int n_query_heads, std::size_t window = 8,
                   const Pooling& pooling = {Pooling::Kind::average, 7})
      : window_(window), pooling_(pooling), sums_(n_query_heads, window) {}

  std::size_t prompt_rows() const override { return window_; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  void finish_prompt(const Prompt& prompt) override {
    w_.clear();
    if (prompt.length() <= window_) return;
    std::vector<double> mean = sums_.mean();
    mean.resize(prompt.length() - window_);
    for (double& x : mean) x /= static_cast<double>(window_);
    w_ = pooled(pooling_, mean);
  }
  /// w over positions [0, P - window); empty when the prompt is not longer than the window.
  std::vector<double> values() const override { return w_; }

 private:
  std::size_t window_;
  Pooling pooling_;
  ColumnSums sums_;
  std::vector<double> w_;
};

}  // namespace kvsim::policy
