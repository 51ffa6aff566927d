#pragma once
/// Tidy result rows: one per trace x cell x scope. What a row speaks of stands in its members, its metrics by
/// key as they are declared (analysis/results/metrics); every export follows the columns of records_of().
/// Formulas: the declarations in metrics/. Symbols, scopes and statistics: analysis/results/METRICS.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

// What a row of results speaks of.

/// The whole model, a layer, one lane (a layer's KV head), or the whole model at one measured step.
enum class Scope { all, layer, head, step };
const char* scope_name(Scope scope);
/// Throws Error(usage) with the nearest names.
Scope parse_scope(std::string_view name);

/// Rows of scope step that a result may have: every step is kept, so long runs under many cells would be
/// more than a table can show.
inline constexpr std::uint64_t kMostStepRows = 1'000'000;

struct Row {
  std::string trace, policy, params, budget;
  std::optional<double> budget_tokens;  ///< mean over the scope's lanes
  std::string cut{};  ///< where the prompt ends for the policy: prompt, question or a position
  Scope scope = Scope::all;
  std::optional<std::uint32_t> layer, head;  ///< null above their scope
  std::optional<std::uint64_t> step;         ///< 0: the last prompt row, asked again; null but at scope step
  std::string workload;                      ///< kind of prompt, as the trace says; empty: not known
  std::uint64_t seed = 0;                    ///< of random policies
  std::optional<std::uint64_t> instruction_before{};
  std::optional<policy::Holding> holding{};  ///< none: skipped, or it decides by itself how much it keeps
  std::string machine{};                     ///< that the row was priced for; empty: it was not
  std::string skipped;                       ///< why metrics are undefined; shown as a note, no column
  bool own_budget = false;  ///< the policy decides by itself how much it keeps, whatever the budget
  bool own_total = false;   ///< because its allocation has a total of its own
  bool oracle = false;      ///< knows the future: a bound at its own split, not a policy

  /// A metric of all_metrics(), undefined until it is set. Throws Error(bug) for a key that no metric has.
  std::optional<double> operator[](std::string_view key) const;
  Value metric(std::size_t index) const;  ///< by its place in all_metrics()
  void set(std::string_view key, Value value);
  void set(std::size_t index, Value value);

 private:
  std::vector<Value> values_;  ///< as all_metrics(); empty: none is defined
};

/// Every column that rows may have, those of a machine included.
std::vector<ColumnInfo> row_columns();
/// The same rows, every column described; those of a machine if some row names one.
Records records_of(const std::vector<Row>& rows);

/// Rows of every cell of one outcome at one scope, in the order of the request. A skipped cell has its rows
/// too, with undefined metrics. Scope step takes an outcome of a request with each_step; without measured
/// steps there are no rows. Throws Error(bug) when the outcome does not fit the request or its own shape.
std::vector<Row> make_rows(const std::string& trace_name, const sim::Request& request,
                           const sim::Outcome& outcome, Scope scope);

/// Sets the machine, and what serving takes on it; nothing where the row's policy cannot be served.
void price(Row& row, const std::string& machine, const std::optional<cost::Estimate>& estimate);

}  // namespace kvsim::analysis
