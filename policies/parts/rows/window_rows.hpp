#pragma once
/// The last rows of a prompt, and the scores that are made of them.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/eviction.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy {

/// The last rows of a prompt as they come, for scores that look at each of them.
class WindowRows {
 public:
  WindowRows(int n_query_heads, std::size_t window)
      : window_(window), heads_(static_cast<std::size_t>(n_query_heads)) {}

  void add(const PromptRows& block) {
    const std::size_t n = block.prompt_length, first = n - std::min(window_, n);
    std::vector<float>& rows = heads_[static_cast<std::size_t>(block.query_head)];
    rows.resize((n - first) * n);
    length_ = n;
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      if (block.first_query + i < first) continue;
      const auto from = block.p.row(i);
      std::copy(from.begin(), from.end(),
                rows.begin() + static_cast<std::ptrdiff_t>((block.first_query + i - first) * n));
    }
  }

  std::size_t window() const { return window_; }
  /// How many there are: fewer than the window in a prompt that is shorter.
  std::size_t count() const { return std::min(window_, length_); }
  /// Positions before the window.
  std::size_t older() const { return length_ - count(); }
  /// What the i-th of these rows pays to the positions before the window, [older()].
  std::span<const float> row(std::size_t head, std::size_t i) const {
    return std::span(heads_[head]).subspan(i * length_, older());
  }
  /// The same to all positions.
  std::span<const float> whole(std::size_t head, std::size_t i) const {
    return std::span(heads_[head]).subspan(i * length_, length_);
  }
  std::size_t n_heads() const { return heads_.size(); }

 private:
  std::size_t window_, length_ = 0;
  std::vector<std::vector<float>> heads_;  ///< [rows, prompt]
};

/// XKV's importance w of a lane's prompt, the vector behind R, R_avg and ISR (arXiv 2412.05896, section on w;
/// SnapKV's score): the mean over the last `window` rows and over the lane's query heads of the attention on
/// each earlier position, average-pooled over positions (zero padding counted in the divisor).
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

/// SnapKV's score (arXiv 2404.14469): the attention of the last prompt rows, smoothed along positions.
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
