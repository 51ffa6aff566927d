#pragma once
/// The metrics of a result row that policies are judged by: what people read on an axis, and which way is
/// better. Formulas: analysis/results/METRICS.md.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::analysis {

enum class Better { lower, higher, neither };

struct Metric {
  const char* key;    ///< column of records_of(rows)
  const char* label;  ///< of axes and headings
  const char* unit;   ///< as the column has it
  Better better;      ///< neither: a bound or a cost, by which policies are not compared
  bool percent;       ///< a share, shown as percent

  /// Oracles keep what measured steps attend. The prompt's importance, and what is held or lost of single
  /// tokens, evidence and peaks, is not what they aim at, and they bound nothing there.
  bool oracles_aim_at_it() const;

  /// Whether `a` is strictly better than `b`; never for Better::neither.
  bool prefers(double a, double b) const {
    return (better == Better::lower && a < b) || (better == Better::higher && a > b);
  }
};

/// All of them, the most telling first.
const std::vector<Metric>& metrics();
/// Throws Error(usage) with the nearest names.
const Metric& metric(std::string_view key);

/// Those that may lead tables and findings: what is lost of the evidence, which
/// predicts answers, where it is marked; else attention loss; else, where no
/// step was measured, importance retained.
const std::vector<const Metric*>& leading_metrics();

}  // namespace kvsim::analysis
