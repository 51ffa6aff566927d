#pragma once
/// What a metric is, declared once: its column, what it means, which way is better, how it follows from what
/// replay summed, and how people read it. Rows, every format, studies, figures and reports follow from the
/// declarations in this folder (one file per family). Symbols of the formulas: analysis/results/METRICS.md.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/results/rows.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

struct Row;

enum class Better { lower, higher, neither };

/// What one value is measured from: lanes of a cell that ran, all of them or those of one layer.
struct Measured {
  const sim::Outcome& outcome;
  const sim::CellOutcome& cell;
  std::span<const sim::LaneOutcome> lanes;
  Scope scope = Scope::all;  ///< head: one lane; layer: those of `layer`; all and step: as Metric::whole says
  std::uint32_t layer = 0;   ///< undefined for lanes of all layers
};

/// How the value of the whole model follows, at scopes all and step.
enum class Whole {
  mean_over_layers,  ///< unweighted; undefined as soon as one layer's value is
  all_lanes          ///< measured over the lanes of all layers at once
};

/// A column of the table for people.
struct Console {
  enum class Show {
    rounded,       ///< four decimals
    tokens,        ///< one decimal
    bytes,         ///< "1.5 MiB"
    milliseconds,  ///< of seconds
  };
  const char* heading = nullptr;  ///< null: not in the table
  Show show = Show::rounded;
  const char* only_with = nullptr;  ///< metric that some row must have; null: always there
  const char* unlike = nullptr;     ///< metric that it must differ from in some row; null: always there
};

struct Metric {
  const char* key;      ///< column of records_of(rows)
  const char* unit;     ///< of its numbers
  const char* meaning;  ///< in words, for people
  /// Where `meaning` does not say it whole: how the number follows. The column's description ends with it.
  const char* formula = nullptr;
  /// Of axes and headings; null: rows have it, studies and figures do not compare by it.
  const char* label = nullptr;
  Better better = Better::neither;  ///< neither: a bound or a cost, by which policies are not compared
  bool percent = false;             ///< a share, shown as percent
  /// Oracles keep what measured steps attend. The prompt's importance, and what is held or lost of single
  /// tokens, evidence and peaks, is not what they aim at, and they bound nothing there.
  bool oracles_aim_at_it = false;

  // Where the value comes from; exactly one of `measure`, `price` and `derive` is set.
  Value (*measure)(const Measured&) = nullptr;  ///< from a cell's outcome
  Whole whole = Whole::mean_over_layers;
  /// The same at one measured step (Request::each_step), counted from 0; null: undefined at scope step.
  Value (*measure_step)(const Measured&, std::uint64_t step) = nullptr;
  /// From what serving takes on a machine: a column only of rows that were priced.
  Value (*price)(const cost::Estimate&) = nullptr;
  /// From other metrics of the row: people see it, machines derive it, so it is no column.
  Value (*derive)(const Row&) = nullptr;

  Console console{};

  /// Whether `a` is strictly better than `b`; never for Better::neither.
  bool prefers(double a, double b) const {
    return (better == Better::lower && a < b) || (better == Better::higher && a > b);
  }
};

/// The column of a metric: its meaning and formula are the description.
ColumnInfo info_of(const Metric& metric);

/// All declarations, families in the order in which people read them.
const std::vector<Metric>& all_metrics();
/// Place of a key in all_metrics(). Throws Error(bug) for a key that no metric has.
std::size_t metric_index(std::string_view key);

/// Those that studies and figures compare by (with a label), the most telling first.
const std::vector<Metric>& metrics();
/// One of metrics(). Throws Error(usage) with the nearest names.
const Metric& metric(std::string_view key);

/// Those that may lead tables and findings: what is lost of the evidence, which
/// predicts answers, where it is marked; else attention loss; else, where no
/// step was measured, importance retained.
const std::vector<const Metric*>& leading_metrics();

}  // namespace kvsim::analysis
