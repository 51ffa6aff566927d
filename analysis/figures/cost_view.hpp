#pragma once
/// Rows of `kvsim cost` as figures ask for them.
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {

/// 2^30 bytes, and milliseconds of a second: what figures show.
inline constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0, kPerMilli = 1e3;

class CostView {
 public:
  /// Points that have an estimate, of the policies and the budget chosen. `costs` must outlive this. Throws
  /// Error(usage) with the nearest names for a choice that is not there.
  CostView(const Records& costs, const FigureChoice& choice);

  const std::vector<std::size_t>& rows() const { return rows_; }
  std::optional<double> number(std::size_t row, const std::string& key) const;
  std::string text(std::size_t row, const std::string& key) const;
  /// Different values of a column, smallest first.
  std::vector<double> values(const std::string& key) const;

  /// The policy and what else tells points apart, but for the columns in `apart`: "snapkv, 25%, batch 8".
  std::string label(std::size_t row, const std::vector<std::string>& apart) const;
  /// Traits that tell points apart beside the policy, as columns: "machine", "budget", "batch", ...
  std::vector<std::string> traits() const;
  /// What a point has of a trait, as it is said: "batch 8"; empty: nothing, as the budget of what has a size
  /// of its own.
  std::string trait(std::size_t row, const std::string& key) const;
  /// Place of a point's policy among all policies of the table: equal in every figure of it.
  int colour(std::size_t row) const;
  /// Whether all points of the policy of this one have a size of their own.
  bool own_size(std::size_t row) const { return text(row, "budget").empty(); }

  /// "Llama-3-8B on a100-80-sxm, prompt 8,192 tokens, batch 8": what all points share, but for `apart`.
  std::string setting(const std::vector<std::string>& apart) const;

 private:
  const Records& costs_;
  std::vector<std::size_t> rows_{};
  std::vector<std::string> policies_{};
};

/// "8 K" for 8 * 1024, "1000" for what is no multiple of 1024.
std::string tokens_text(double tokens);
/// Tokens in units of 1024, on a log axis.
Axis token_axis(const std::string& name);

/// A curve per policy over one column.
struct CostCurves {
  const char* figure = "";
  const char* x = "";  ///< column
  Axis axis{};
  double x_unit = 1;
  struct Panel {
    const char* title = "";
    const char* y = "";
    const char* label = "";
    double unit = 1;  ///< of the column, in those shown
    bool log = false;
    /// Column a line stands at. Panels without one show only points that fit the machine's memory.
    const char* limit = "";
  };
  std::vector<Panel> panels{};
  const char* title = "";
  const char* reading = "";
};
/// None when no two points differ in `x` alone. A policy with a size of its own is a dashed line
/// where x is the budget. Of more than eight curves, those that differ in a trait such as the batch stand in
/// rows of panels, a row for each of its values; what is left beyond eight curves or four rows is in further
/// figures, and each says what the others show.
std::vector<Figure> cost_curves(const FigureTables& tables, const FigureChoice& choice,
                                const CostCurves& curves);

/// Points of a table of costs as bars of parts end to end.
struct CostBars {
  const char* figure = "";
  struct Bar {
    const char* suffix = "";                        ///< after the point's name: ", prefill"
    std::vector<std::vector<std::string>> parts{};  ///< columns whose sum a part is
  };
  std::vector<Bar> bars{};           ///< of every point
  std::vector<const char*> parts{};  ///< names; as many as each bar has
  const char* axis = "";
  double unit = 1;
  const char* limit = "";  ///< column a line stands at; empty: none
  const char* title = "";
  const char* reading = "";
};
/// A panel per prompt length, at most three.
std::vector<Figure> cost_bars(const FigureTables& tables, const FigureChoice& choice, const CostBars& bars);

}  // namespace kvsim::analysis
