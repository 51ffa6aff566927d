#pragma once
/// The rows on which Attention Matching compares a small cache with the whole: queries of the prompt, each on
/// every key, later ones too, as its authors' context prefill has it.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Added to squares in least squares: what the authors' code falls back to where those fail without.
inline constexpr double kMatchingRidge = 1e-6;

/// Of one KV head: its query heads one after the other, the same rows of each.
struct ReferenceRows {
  std::size_t keys = 0;
  std::vector<double> weights{};  ///< [rows, keys]: exp(logit - largest logit of the row)
  std::vector<double> sums{};     ///< per row

  /// `most`: rows of a query head, spread evenly over the prompt, the last among them; 0: all.
  ReferenceRows(const Prompt& prompt, int lane, int group, std::size_t most);
  std::size_t rows() const { return sums.size(); }
  std::span<const double> row(std::size_t i) const { return {weights.data() + i * keys, keys}; }
};

/// How many rows of a query head that are.
std::size_t reference_rows(std::size_t prompt, std::size_t most);

ParamSpec reference_rows_param();

/// Of X, [rows, columns], and Y, [rows, width]: the W, [columns, width], of least |X W - Y|^2 +
/// kMatchingRidge |W|^2.
std::vector<double> ridge_solution(std::span<const double> x, std::size_t columns, std::span<const double> y,
                                   std::size_t width);

}  // namespace kvsim::policy
