#pragma once
/// The last prompt rows, averaged over a unit's query heads.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Holds rows * prompt floats, for rules that need single rows and not only their sums.
class MeanRows {
 public:
  MeanRows(int n_query_heads, std::size_t rows)
      : weight_(1 / static_cast<float>(n_query_heads)), rows_(rows) {}

  void add(const PromptRows& block);

  /// Number of rows held: the last min(rows, prompt).
  std::size_t size() const { return length_ == 0 ? 0 : mean_.size() / length_; }
  /// Position of the query of row i.
  std::size_t query(std::size_t i) const { return length_ - size() + i; }
  /// Row i, [prompt].
  std::span<const float> row(std::size_t i) const { return std::span(mean_).subspan(i * length_, length_); }

 private:
  float weight_;
  std::size_t rows_, length_ = 0;
  std::vector<float> mean_;
};

}  // namespace kvsim::policy
