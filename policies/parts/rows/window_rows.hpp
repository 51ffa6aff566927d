#pragma once
/// The last rows of a prompt as they come, for scores that look at each of them.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

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

}  // namespace kvsim::policy
