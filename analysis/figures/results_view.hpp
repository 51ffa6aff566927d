#pragma once
/// Result rows as figures ask for them: by policy label, budget and trace.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

/// A column of a table, found once.
class TableColumn {
 public:
  TableColumn(const Records& table, const char* key) : table_(&table), column_(table.column(key)) {}
  std::optional<double> number(std::size_t row) const { return analysis::number(table_->rows[row][column_]); }
  /// Empty: undefined.
  const std::string& text(std::size_t row) const;

 private:
  const Records* table_;
  std::size_t column_;
};

/// Rows whose text columns say what is asked.
std::vector<std::size_t> rows_where(const Records& table,
                                    const std::vector<std::pair<const char*, std::string>>& wanted);

/// Whether figures compare a policy with others: all but oracles and the full cache itself. What decides by
/// itself how much it keeps is compared, too: to store everything in fewer bits, or to read a part of it, is
/// a choice as eviction is.
bool is_compared(const std::string& label, const std::string& role);

class ResultsView {
 public:
  explicit ResultsView(const Records& results);

  struct Policy {
    std::string label, role;
    bool stores_all = false;  ///< the full cache, whatever is made of its numbers or read of them
    bool compared() const { return is_compared(label, role); }
  };
  const std::vector<Policy>& policies() const { return policies_; }  ///< in order of appearance
  std::vector<std::string> labels() const;
  /// Throws Error(usage) with the nearest names for one that is not there.
  const Policy& policy(const std::string& label) const;
  std::size_t policy_of(std::size_t row) const { return policy_of_[row]; }

  /// Smallest first. Shares of the prompt when all are given as percent, else tokens per lane.
  const std::vector<std::string>& budgets() const { return budgets_; }
  bool shares() const { return shares_; }
  double place(const std::string& name) const { return places_.at(name); }
  Axis budget_axis() const;
  /// What a lane keeps whose budget is its own, on the same axis.
  std::optional<double> own_place(std::size_t row) const;
  /// `value` at every budget: the ends of a level line, or one point where there is one budget.
  std::vector<Point> level(const Point& value) const;

  /// Rows of a scope, of the chosen workload and trace.
  std::vector<std::size_t> rows(const std::string& scope, const FigureChoice& choice) const;
  /// Those of `rows` at a budget.
  std::vector<std::size_t> rows_at(const std::string& budget, const std::vector<std::size_t>& rows) const;
  /// The budget chosen, else the middle one of those in `rows`.
  std::string one_budget(const std::vector<std::size_t>& rows, const FigureChoice& choice) const;

  /// Those of `rows` on traces where some policy has a value: not every trace marks evidence.
  std::vector<std::size_t> rows_with(const std::vector<std::size_t>& rows, const TableColumn& field) const;
  /// Mean over rows_with() (traces and seeds) of each policy; nothing where one has no value.
  std::vector<std::optional<double>> means(const std::vector<std::size_t>& rows,
                                           const TableColumn& field) const;

  const TableColumn budget, trace, workload, scope, layer, head, step, kept_tokens, budget_tokens;
  TableColumn metric(const std::string& key) const { return TableColumn(results_, key.c_str()); }

 private:
  const Records& results_;
  std::vector<Policy> policies_;
  std::vector<std::size_t> policy_of_;
  std::vector<std::string> budgets_;
  std::map<std::string, double> places_;
  bool shares_ = true;
};

/// The first of leading_metrics() that the means have, or without means the
/// results; attention loss if none.
const Metric& leading_metric(const FigureTables& tables);
/// `other` where more of the rows have it than `first`, as where numbers are stored otherwise.
const Metric& more_defined(const ResultsView& view, const std::vector<std::size_t>& rows, const Metric& first,
                           const Metric& other);
/// The metric chosen, else the one that leads.
const Metric& one_metric(const FigureTables& tables, const FigureChoice& choice);
/// "attention loss (%)" or with its unit.
Axis metric_axis(const Metric& metric);
/// The workload chosen, or "all".
std::string one_workload(const FigureChoice& choice);
/// Whom ranks and paired differences at a budget leave out, because they keep what they like whatever it is;
/// empty: nobody.
std::string own_budgets_remark(const ResultsView& view);
/// "of a budget of 20%".
std::string at_budget(const std::string& budget);

/// Which policies get a name and a colour where all of them would be too many. A choice is taken as it is.
/// Otherwise all of up to eight; else the five that come nearest to the best, on average over the budgets
/// they have a value at, and well-known ones: random, streaming_llm, h2o, snapkv. Those without a value come
/// last.
class NamedPolicies {
 public:
  /// By the means of `metric` over the results, of scope all where they have it.
  NamedPolicies(const ResultsView& view, const Metric& metric, const FigureChoice& choice);

  bool has(const std::string& label) const { return place(label) >= 0; }
  /// Best first; -1: not named.
  int place(const std::string& label) const;
  const std::vector<std::string>& labels() const { return labels_; }
  /// How many policies are not named.
  std::size_t others() const { return others_; }
  /// The rule, for the figure's remark; empty when all are named.
  std::string remark() const;

 private:
  std::vector<std::string> labels_;
  std::size_t others_ = 0;
  bool chosen_ = false;
};

/// Names and colours for several panels: those that each would name, in turns, up to eight.
std::vector<std::string> names_in_turns(const std::vector<std::vector<std::string>>& wanted);
/// What a cut means, as short as a panel's title must be.
std::string short_meaning(const std::string& cut);

}  // namespace kvsim::analysis
