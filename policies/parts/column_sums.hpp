#pragma once
/// Attention that prompt positions received, summed over rows: what most scores are made of.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Per query head of a unit, sums over the last `rows` prompt rows (kAllRows: all of them) of p(i, j) for
/// every key j. Rows are added in order of position in double, element by element: however the feeder cuts
/// them into blocks, and whichever heads come first, the sums have the same bits.
class ColumnSums {
 public:
  ColumnSums(int n_query_heads, std::size_t rows)
      : rows_(rows), heads_(static_cast<std::size_t>(n_query_heads)) {}

  void add(const PromptRows& block);

  std::size_t n_heads() const { return heads_.size(); }
  /// [prompt length].
  std::span<const double> head(std::size_t query_head) const { return heads_[query_head]; }
  /// Mean over the query heads, [prompt length].
  std::vector<double> mean() const;

 private:
  std::size_t rows_;
  std::vector<std::vector<double>> heads_;
};

}  // namespace kvsim::policy
