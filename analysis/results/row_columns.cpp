#include <algorithm>

#include "analysis/results/cell_columns.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/split.hpp"

namespace kvsim::analysis {

/// The order of schema version 3: row_columns.txt, compiled in (CMakeLists.txt). Metrics that are not named
/// there follow in the order of their declaration.
std::string_view row_columns_text();

namespace {

auto place(const Column<Row>& column) {
  static const std::vector<std::string> kOrder = text_words(row_columns_text()).at(0);
  return std::ranges::find(kOrder, column.info.key);
}

/// What a row speaks of.
Columns<Row> identity_columns() {
  const auto budget = [](std::size_t i) { return [i](const Row& r) { return budget_fields(r.budget)[i]; }; };
  return {
      {"trace", "", "trace file, as given", &Row::trace},
      {"policy", "", "composition, as a table shows it", &Row::policy},
      {"params", "", "composition with every effective parameter", &Row::params},
      {"budget", "", "budget, as given", &Row::budget},
      {budget_columns()[0], budget(0)},
      {budget_columns()[1], budget(1)},
      {"budget_tokens", "tokens per lane",
       "what the budget comes to for this trace (scope all: as asked, below: as allocated)",
       &Row::budget_tokens},
      {"cut", "",
       "where the prompt ends for policies: prompt, question, or so many tokens; all that follows arrives "
       "token by token",
       &Row::cut},
      {"scope", "", "all, layer, head or step", [](const Row& r) { return scope_name(r.scope); }},
      {"layer", "index", "null at scopes all and step", &Row::layer},
      {"head", "index", "KV head; null but at scope head", &Row::head},
      {"workload", "", "kind of prompt, if the trace says",
       [](const Row& r) { return text_or_none(r.workload); }},
      {"seed", "", "seed of random policies", &Row::seed},
      {"step", "index",
       "measured step: s attends with the s-th token behind the cut, 0 with the last prompt token once "
       "more; null but at scope step",
       &Row::step},
      {"role", "",
       "policy; oracle: knows the future, a bound at its own split; own_budget: keeps what it likes, "
       "whatever the budget",
       [](const Row& r) { return role_name(r.oracle, r.own_budget); }},
      {"instruction_before", "tokens",
       "of the prompt before its context, which every cut leaves in the prompt", &Row::instruction_before},
      {"holding", "",
       "what it may hold beside the budget B: managed, never more; append_only, every generated token; "
       "overshoot, what attends before it leaves",
       [](const Row& r) {
         return r.holding ? Value(std::string(policy::holding_name(*r.holding))) : Value();
       }},
  };
}

/// How many columns speak of serving, which stand only where rows were priced: the last ones.
std::size_t priced_columns() {
  return 1 + static_cast<std::size_t>(std::ranges::count_if(
                 all_metrics(), [](const Metric& metric) { return metric.price != nullptr; }));
}

const Columns<Row>& columns() {
  static const Columns<Row> all = [] {
    Columns<Row> out = identity_columns(), priced;
    priced.emplace_back("machine", "", "machine the next columns are modelled for, one sequence at a time",
                        &Row::machine);
    for (std::size_t i = 0; i < all_metrics().size(); ++i) {
      const Metric& metric = all_metrics()[i];
      if (metric.derive != nullptr) continue;
      (metric.price == nullptr ? out : priced).emplace_back(info_of(metric), [i](const Row& r) {
        return r.metric(i);
      });
    }
    std::ranges::stable_sort(out, {}, place);
    return std::move(out) + priced;
  }();
  return all;
}

}  // namespace

std::vector<ColumnInfo> row_columns() {
  return infos(columns());
}

Records records_of(const std::vector<Row>& rows) {
  if (std::ranges::any_of(rows, [](const Row& row) { return !row.machine.empty(); }))
    return table_of(columns(), rows);
  static const Columns<Row> unpriced(columns().begin(),
                                     columns().end() - static_cast<std::ptrdiff_t>(priced_columns()));
  return table_of(unpriced, rows);
}

}  // namespace kvsim::analysis
