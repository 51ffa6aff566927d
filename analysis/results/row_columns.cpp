#include <algorithm>
#include <functional>

#include "analysis/results/budget_columns.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/policy_role.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {
namespace {

/// How a column is called, explained and read.
struct Column {
  ColumnInfo info{};
  std::function<Value(const Row&)> get{};
  bool priced = false;  ///< stands only where rows were priced
};

/// The order of schema version 3. Metrics that are not named here follow in the order of their declaration.
constexpr std::string_view kOrder[] = {"trace",
                                       "policy",
                                       "params",
                                       "budget",
                                       "budget_kind",
                                       "budget_number",
                                       "budget_tokens",
                                       "cut",
                                       "scope",
                                       "layer",
                                       "head",
                                       "evidence_loss",
                                       "evidence_held",
                                       "evidence_nowhere",
                                       "peak_loss",
                                       "r",
                                       "r_oracle",
                                       "isr",
                                       "attention_loss",
                                       "attention_loss_oracle",
                                       "output_error",
                                       "kept_tokens",
                                       "kept_bytes",
                                       "oracle_cosine",
                                       "allotted_tokens",
                                       "workload",
                                       "seed",
                                       "step",
                                       "role",
                                       "held_tokens",
                                       "evicted_tokens",
                                       "output_cosine",
                                       "projected_output_error",
                                       "projected_output_cosine",
                                       "peak_loss_weighted",
                                       "peak_loss_low",
                                       "peak_loss_by_head",
                                       "peak_loss_output",
                                       "kept_special",
                                       "kept_context",
                                       "kept_question",
                                       "kept_template",
                                       "instruction_before",
                                       "holding",
                                       "r_bound",
                                       "attention_loss_bound"};

auto place(const Column& column) {
  return std::find(std::begin(kOrder), std::end(kOrder), column.info.key);
}

/// What a row speaks of.
std::vector<Column> identity_columns() {
  return {
      {{"trace", "", "trace file, as given"}, [](const Row& r) { return Value(r.trace); }},
      {{"policy", "", "composition, as a table shows it"}, [](const Row& r) { return Value(r.policy); }},
      {{"params", "", "composition with every effective parameter"},
       [](const Row& r) { return Value(r.params); }},
      {{"budget", "", "budget, as given"}, [](const Row& r) { return Value(r.budget); }},
      {budget_columns()[0], [](const Row& r) { return budget_fields(r.budget)[0]; }},
      {budget_columns()[1], [](const Row& r) { return budget_fields(r.budget)[1]; }},
      {{"budget_tokens", "tokens per lane",
        "what the budget comes to for this trace (scope all: as asked, below: as allocated)"},
       [](const Row& r) { return value_of(r.budget_tokens); }},
      {{"cut", "",
        "where the prompt ends for policies: prompt, question, or so many tokens; all that follows arrives "
        "token by token"},
       [](const Row& r) { return Value(r.cut); }},
      {{"scope", "", "all, layer, head or step"}, [](const Row& r) { return Value(scope_name(r.scope)); }},
      {{"layer", "index", "null at scopes all and step"}, [](const Row& r) { return value_of(r.layer); }},
      {{"head", "index", "KV head; null but at scope head"}, [](const Row& r) { return value_of(r.head); }},
      {{"workload", "", "kind of prompt, if the trace says"},
       [](const Row& r) { return text_or_none(r.workload); }},
      {{"seed", "", "seed of random policies"}, [](const Row& r) { return Value(r.seed); }},
      {{"step", "index",
        "measured step: s attends with the s-th token behind the cut, 0 with the last prompt token once "
        "more; null but at scope step"},
       [](const Row& r) { return value_of(r.step); }},
      {{"role", "",
        "policy; oracle: knows the future, a bound at its own split; own_budget: keeps what it likes, "
        "whatever the budget"},
       [](const Row& r) { return Value(role_name(r.oracle, r.own_budget)); }},
      {{"instruction_before", "tokens",
        "of the prompt before its context, which every cut leaves in the prompt"},
       [](const Row& r) { return value_of(r.instruction_before); }},
      {{"holding", "",
        "what it may hold beside the budget B: managed, never more; append_only, every generated token; "
        "overshoot, what attends before it leaves"},
       [](const Row& r) {
         return r.holding ? Value(std::string(policy::holding_name(*r.holding))) : Value();
       }},
  };
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> out = identity_columns(), priced;
    priced.push_back({{"machine", "", "machine the next columns are modelled for, one sequence at a time"},
                      [](const Row& r) { return Value(r.machine); },
                      true});
    for (std::size_t i = 0; i < all_metrics().size(); ++i) {
      const Metric& metric = all_metrics()[i];
      if (metric.derive != nullptr) continue;
      (metric.price == nullptr ? out : priced)
          .push_back(
              {info_of(metric), [i](const Row& r) { return r.metric(i).field(); }, metric.price != nullptr});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Column& a, const Column& b) { return place(a) < place(b); });
    out.insert(out.end(), priced.begin(), priced.end());
    return out;
  }();
  return all;
}

}  // namespace

std::vector<ColumnInfo> row_columns() {
  std::vector<ColumnInfo> out;
  for (const Column& column : columns()) out.push_back(column.info);
  return out;
}

Records records_of(const std::vector<Row>& rows) {
  const bool priced =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.machine.empty(); });
  std::vector<const Column*> shown;
  for (const Column& column : columns())
    if (priced || !column.priced) shown.push_back(&column);
  Records out;
  for (const Column* column : shown) out.columns.push_back(column->info);
  out.rows.reserve(rows.size());
  for (const Row& row : rows) {
    std::vector<Value>& fields = out.rows.emplace_back();
    fields.reserve(shown.size());
    for (const Column* column : shown) fields.push_back(column->get(row));
  }
  return out;
}

}  // namespace kvsim::analysis
