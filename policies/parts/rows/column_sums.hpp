#pragma once
/// Sums of the attention that prompt positions receive, over rows: the basis of most scores.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// The last rows of a prompt: a number of them, or a share of the prompt (rounded down, at least one).
struct LastRows {
  std::size_t count = kAllRows;
  double share = 0;  ///< 0: count

  LastRows(std::size_t rows) : count(rows) {}  // NOLINT(google-explicit-constructor): a number of rows is one
  static LastRows of_share(double share);
  std::size_t in(std::size_t prompt) const;
};

/// Per query head of a unit, sums over the last rows of the prompt (kAllRows: all of them) of p(i, j) for
/// every key j. Rows are added in double, element by element, in order of position, so the sums have the same
/// bits however the feeder cuts rows into blocks and in whichever order the heads come.
class ColumnSums {
 public:
  ColumnSums(int n_query_heads, LastRows rows)
      : rows_(rows), heads_(static_cast<std::size_t>(n_query_heads)) {}

  void add(const PromptRows& block);
  /// Like add(), but row i sets every key's sum to step(sum, p(i, j), i) instead of adding to it. step(0, 0,
  /// i) must be 0: a key that a row does not see is treated like a key that does not exist.
  template <class Step>
  void fold(const PromptRows& block, Step step) {
    std::vector<double>& sums = open(block);
    for (std::size_t i = first_row(block); i < block.p.rows; ++i)
      for (std::size_t j = 0; j < block.p.cols; ++j)
        sums[j] = step(sums[j], static_cast<double>(block.p(i, j)), block.first_query + i);
  }
  /// Takes the sums of all rows of a query head at once, [prompt length]; they already include the blocks
  /// that follow. For sums over all rows.
  void take(int query_head, std::span<const double> sums);
  /// Returns the sums of the block's query head, for callers that add the rows from first_row() on
  /// themselves.
  std::vector<double>& open(const PromptRows& block);
  /// Returns the first row of the block that counts; block.p.rows: none.
  std::size_t first_row(const PromptRows& block) const;

  std::size_t n_heads() const { return heads_.size(); }
  /// Sums of one query head, [prompt length].
  std::span<const double> head(std::size_t query_head) const { return heads_[query_head]; }
  /// Mean over the query heads, [prompt length].
  std::vector<double> mean() const;

 private:
  LastRows rows_;
  std::vector<std::vector<double>> heads_;
  bool taken_ = false;
};

}  // namespace kvsim::policy
