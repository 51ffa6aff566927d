#pragma once
/// A kind of analysis of traces: what recorded runs show, without replaying policies at budgets. `kvsim
/// analyze` has a subcommand for each, a study runs those it lists. To add one: a file that defines its entry
/// function, and a line in kinds.def. Its columns say what the numbers mean.
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "policies/api/registry.hpp"
#include "sim/base/params.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

/// What an analysis of traces is told besides the traces, by parameters that `kvsim analyze KIND --name
/// VALUE` and study files set: ParamValues reads them.
class Settings : public ParamValues {
 public:
  /// Every parameter at its default.
  explicit Settings(std::vector<ParamSpec> declared);
  /// Throws Error(usage), placed at `where`, for a name that is not declared and a value that is not legal.
  void set(std::string_view name, std::string_view value, std::string_view where);

 private:
  std::vector<ParamSpec> declared_;
};

/// What one trace is measured with.
struct Measurement {
  std::string trace;  ///< its name in results
  const trace::Sequence& sequence;
  const Settings& settings;
  const policy::Registry& policies;
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
  Progress& progress;
};

struct Kind {
  const char* name = "";
  const char* summary = "";  ///< one line, for help
  const char* source = "";   ///< paper and figure or equation
  std::vector<ParamSpec> settings{};
  /// Of the table; the first is "trace". Told once, for every format and for the documentation.
  std::vector<ColumnInfo> columns{};
  std::vector<std::string> notes{};  ///< lines under the table for people
  /// Rows of one trace. Throws Error(usage) for settings that cannot go together, and for a trace that lacks
  /// what the kind needs (what, and how to capture it); Error(input) when the trace is damaged.
  std::vector<std::vector<Value>> (*measure)(const Measurement&) = nullptr;
  /// Kinds that compare traces: the rows of all of them become the table, in `summary_columns`. Null: the
  /// rows of the traces one after the other are the table.
  std::vector<ColumnInfo> summary_columns{};
  Records (*summarise)(const Records& all, const Settings& settings) = nullptr;
};

/// In the order of kinds.def.
const std::vector<Kind>& kinds();
/// Throws Error(usage) with the nearest names.
const Kind& kind_named(std::string_view name);

}  // namespace kvsim::analysis
