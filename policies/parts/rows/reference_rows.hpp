#pragma once
/// The rows on which Attention Matching compares a small cache with the whole: queries, each on every key of
/// the prompt, later ones too. They are the prompt's own, as the authors' context prefill has it, or those of
/// a second pass, in which the model repeats the prompt.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::policy {

/// Added to squares in least squares: what the authors' code falls back to where those fail without.
inline constexpr double kMatchingRidge = 1e-6;

/// Which queries, as parameters ask.
struct ReferenceQueries {
  std::string file{};    ///< of a second pass; empty: the prompt's own
  std::size_t most = 0;  ///< of a query head, spread evenly, the last among them; 0: all

  static ReferenceQueries of(const Params& params);
  /// `needs` of a policy that takes those of the prompt by default.
  static Needs needs(const Params& params, Needs needs);
  /// Tokens that the model repeats at once.
  static std::size_t repeated_at_once(const Params& params);
};

/// "queries" and "rows", which say that.
ParamSpec reference_queries_param();
ParamSpec reference_rows_param();

/// Of one KV head: its query heads one after the other, the same rows of each.
class ReferenceRows {
 public:
  /// Throws Error(input) where the file is of another run.
  ReferenceRows(const Prompt& prompt, const CacheUnit& unit, int lane, const ReferenceQueries& asked);
  std::size_t rows() const { return queries_.size(); }
  /// Finds exp(logit - largest logit of the row) of every key. Returns their sum.
  double find(std::size_t i, std::span<double> weights) const;

 private:
  std::vector<float> repeated_{};        ///< queries of a file
  std::vector<const float*> queries_{};  ///< per row
  double scale_, cap_;
  DotRows keys_;
};

/// How many rows of a query head that are.
std::size_t reference_rows(std::size_t prompt, std::size_t most);

/// Of X, [rows, columns], and Y, [rows, width]: the W, [columns, width], of least |X W - Y|^2 +
/// kMatchingRidge |W|^2.
std::vector<double> ridge_solution(std::span<const double> x, std::size_t columns, std::span<const double> y,
                                   std::size_t width);

}  // namespace kvsim::policy
