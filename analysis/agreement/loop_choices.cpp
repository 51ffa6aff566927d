#include "analysis/agreement/loop_choices.hpp"

#include <algorithm>

#include "analysis/statistics/running_mean.hpp"
#include "analysis/statistics/trace_groups.hpp"

namespace kvsim::analysis {
namespace {

class Choice {
 public:
  Choice(const RankedWorkload& of, std::size_t closed) : of_(of), closed_(closed) {}

  /// On a half of the items; nothing without an order.
  Estimated tau(std::size_t open, std::size_t budget, std::size_t half) {
    const Shared shared = shared_on(open, budget, half);
    if (shared.policies.size() < 2 || members(shared.items) == 0) return {};
    return of_.judged.tau(of_.judged.by_open(open, budget, shared),
                          of_.judged.by_closed(closed_, budget, shared));
  }

  Shared shared_on(std::size_t open, std::size_t budget, std::size_t half) const {
    return of_.judged.shared(open, closed_, budget, of_.judged.ran_on_all(of_.workload, budget),
                             of_.judged.items_of(of_.workload, half));
  }

  /// The highest mean over budgets on the half that chooses; where a measure finds all policies alike, and
  /// another does not, it has found no order: 0. Of equal ones the first.
  std::optional<std::size_t> chosen() {
    std::vector<std::vector<std::optional<double>>> taus;
    for (std::size_t budget = 0; budget < of_.loops.budgets.size(); ++budget) {
      std::vector<std::optional<double>>& at = taus.emplace_back();
      for (std::size_t open = 0; open < of_.loops.open.size(); ++open)
        at.push_back(tau(open, budget, kChooses).value);
      if (std::none_of(at.begin(), at.end(), [](const auto& value) { return value.has_value(); }))
        taus.pop_back();
    }
    if (taus.empty()) return {};
    std::size_t best = 0;
    double highest = -2;
    for (std::size_t open = 0; open < of_.loops.open.size(); ++open) {
      RunningMean mean;
      for (const auto& at : taus) mean.add(at[open].value_or(0));
      if (*mean.value() <= highest) continue;
      highest = *mean.value();
      best = open;
    }
    return best;
  }

  void add_rows(std::vector<std::vector<Value>>& rows) {
    const std::optional<std::size_t> open = chosen();
    if (!open) return;
    for (std::size_t budget = 0; budget < of_.loops.budgets.size(); ++budget) {
      const Shared shared = shared_on(*open, budget, kReports);
      if (shared.policies.size() < 2) continue;
      const Estimated reported = tau(*open, budget, kReports);
      std::size_t best = *open;
      std::optional<double> best_tau = reported.value;
      for (std::size_t other = 0; other < of_.loops.open.size(); ++other) {
        const std::optional<double> value = tau(other, budget, kReports).value;
        if (!value || (best_tau && *value <= *best_tau)) continue;
        best = other;
        best_tau = value;
      }
      std::vector<Value> row = row_head(of_, budget);
      row.insert(
          row.end(),
          {std::string(of_.loops.closed[closed_]->key), std::string(of_.loops.open[*open]->key),
           value_of(tau(*open, budget, kChooses).value), value_of(reported.value), value_of(reported.low),
           value_of(reported.high), best_tau ? Value(std::string(of_.loops.open[best]->key)) : Value(),
           value_of(best_tau), std::uint64_t{shared.policies.size()}, members(shared.items)});
      rows.push_back(std::move(row));
    }
  }

 private:
  const RankedWorkload& of_;
  std::size_t closed_;
};

}  // namespace

std::vector<ColumnInfo> choice_columns() {
  return {{"closed", "", "measure of the closed loop"},
          {"open", "", "measure of the replay that one half of the items chooses, over all budgets"},
          {"tau_chosen", "", "Kendall's tau-b between the two on that half"},
          {"tau", "", "the same on the other half"},
          {"tau_low", "", "low end of its bootstrap interval over items; null: too few, or no order"},
          {"tau_high", "", "its high end"},
          {"best", "", "measure of the replay that would have been best on the other half"},
          {"best_tau", "", "its tau-b there"},
          {"policies", "policies", "that are ordered"},
          {"items", "items", "of the other half, over which means are taken"}};
}

void add_choices(const RankedWorkload& of, std::vector<std::vector<Value>>& rows) {
  for (const std::size_t closed : of.closed) Choice(of, closed).add_rows(rows);
}

}  // namespace kvsim::analysis
