#pragma once
/// Rows of `kvsim cost` as figures ask for them.
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"

namespace kvsim::analysis {

/// 2^30 bytes, and milliseconds of a second: what figures show.
inline constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0, kPerMilli = 1e3;

/// "80 GiB of memory".
std::string memory_text(double gib);

class CostPoints {
 public:
  /// Points that have an estimate, of the policies and the budget chosen. `costs` must outlive this. Throws
  /// Error(usage) with the nearest names for a choice that is not there.
  CostPoints(const Records& costs, const FigureChoice& choice);

  const std::vector<std::size_t>& rows() const { return rows_; }
  std::optional<double> number(std::size_t row, const std::string& key) const;
  std::string text(std::size_t row, const std::string& key) const;

  /// The policy and what else tells points apart, but for the columns in `apart`: "snapkv, 25%, batch 8".
  std::string label(std::size_t row, const std::vector<std::string>& apart) const;
  /// Traits that tell points apart beside the policy, as columns: "machine", "budget", "batch", ...
  std::vector<std::string> traits() const;
  /// What a point has of a trait, as it is said: "batch 8"; empty: nothing, as the budget of what has a size
  /// of its own.
  std::string trait(std::size_t row, const std::string& key) const;
  /// "Llama-3-8B on a100-80-sxm, prompt 8,192 tokens, batch 8": what all points share, but for `apart`.
  std::string setting(const std::vector<std::string>& apart) const;

  /// Whether all points of the policy of this one have a size of their own.
  bool own_size(std::size_t row) const { return text(row, "budget").empty(); }

 private:
  const Records& costs_;
  std::vector<std::size_t> rows_{};
  std::vector<std::string> policies_{};
  std::vector<std::vector<std::string>> said_{};  ///< of each trait, what there is
};

/// "8 K" for 8 * 1024, "1000" for what is no multiple of 1024.
std::string tokens_text(double tokens);
/// Tokens in units of 1024, on a log axis.
Axis token_axis(const std::string& name);

}  // namespace kvsim::analysis
