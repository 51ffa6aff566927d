#include "analysis/agreement/loop_agreement.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "analysis/results/numbers.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "analysis/statistics/trace_values.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// Halves of the items: one chooses, what it chose is reported on the other.
constexpr std::size_t kChooses = 0, kReports = 1;

/// A workload at a cut, whose tables are made.
struct RankedWorkload {
  const LoopsAtCut& loops;
  JudgedPolicies& judged;
  const AgreementOptions& options;
  std::string workload;
  std::vector<std::size_t> closed;  ///< places of options.closed in loops.closed
};

/// workload, cut and budget: what every row begins with.
std::vector<Value> row_head(const RankedWorkload& of, std::size_t budget) {
  return {of.workload.empty() ? Value() : Value(of.workload), of.loops.cut, of.loops.budgets[budget]};
}

/// The open measure with the highest mean of tau-b over budgets on one half of the items, and its tau-b on
/// the other half, at every budget, beside the best that could have been chosen there.
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
      if (std::ranges::none_of(at, [](const auto& value) { return value.has_value(); })) taus.pop_back();
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

/// A policy at a budget on a half of the items.
struct Cell {
  double judged = 0;  ///< by the open measure; larger is better
  bool kept = false;  ///< whether it has the full cache's accuracy, or nearly
};

std::size_t place_of(const LoopsAtCut& loops, std::string_view closed) {
  const auto found =
      std::ranges::find_if(loops.closed, [&](const ClosedMeasure* each) { return each->key == closed; });
  return static_cast<std::size_t>(found - loops.closed.begin());
}

std::vector<Cell> cells_of(const RankedWorkload& of, std::size_t open, std::size_t budget, std::size_t half) {
  const std::size_t right = place_of(of.loops, "right");
  const Shared shared = of.judged.shared(open, right, budget, of.judged.ran_on_all(of.workload, budget),
                                         of.judged.items_of(of.workload, half));
  std::vector<Cell> out;
  if (members(shared.items) == 0) return out;
  std::vector<double> full;
  for (const LoopsAtCut::Item& item : of.loops.items) full.push_back(item.right_full);
  const double enough = of.options.kept * mean_over(shared.items, full);
  const Judged &by_open = of.judged.by_open(open, budget, shared),
               &by_right = of.judged.by_closed(right, budget, shared);
  for (std::size_t p = 0; p < shared.policies.size(); ++p)
    out.push_back({by_open.means[p], by_right.means[p] >= enough});
  return out;
}

struct Threshold {
  std::optional<double> value{};
  std::uint64_t cells = 0;  ///< within it
};

/// The worst value such that of the cells that are as good or better nearly all keep their accuracy.
Threshold threshold_of(std::vector<Cell> cells, double trusted) {
  std::ranges::sort(cells, [](const Cell& a, const Cell& b) { return a.judged > b.judged; });
  Threshold out;
  double kept = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    kept += cells[i].kept ? 1 : 0;
    const bool last_of_equals = i + 1 == cells.size() || cells[i + 1].judged < cells[i].judged;
    if (last_of_equals && kept >= trusted * static_cast<double>(i + 1)) out = {cells[i].judged, i + 1};
  }
  return out;
}

std::vector<ColumnInfo> threshold_columns() {
  return {{"open", "", "measure of the replay"},
          {"threshold", "of the measure", "value up to which one half of the items trusts it; null: nowhere"},
          {"chosen_within", "cells", "policies at budgets that are as good or better on that half"},
          {"within", "policies", "on the other half at this budget, as good as the threshold or better"},
          {"within_kept", "policies", "of those, with the full cache's accuracy or nearly"},
          {"beyond", "policies", "worse than the threshold"},
          {"beyond_kept", "policies", "of those, with that accuracy all the same"}};
}

/// The value of every open measure up to which the open loop is trusted: of the cells (a policy at a budget)
/// within it, nearly all keep the full cache's accuracy. One half of the items chooses it, over all budgets,
/// as it bounds a loss and orders nothing; the other half is counted at each budget.
void add_thresholds(const RankedWorkload& of, std::vector<std::vector<Value>>& rows) {
  for (std::size_t open = 0; open < of.loops.open.size(); ++open) {
    std::vector<Cell> choosing;
    for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget)
      for (const Cell& cell : cells_of(of, open, budget, kChooses)) choosing.push_back(cell);
    const Threshold threshold = threshold_of(choosing, of.options.trusted);
    const double sign = of.loops.open[open]->better == Better::lower ? -1 : 1;
    for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget) {
      const std::vector<Cell> cells = cells_of(of, open, budget, kReports);
      if (cells.empty()) continue;
      std::uint64_t within = 0, within_kept = 0, kept = 0;
      for (const Cell& cell : cells) {
        kept += cell.kept ? 1 : 0;
        if (!threshold.value || cell.judged < *threshold.value) continue;
        within += 1;
        within_kept += cell.kept ? 1 : 0;
      }
      std::vector<Value> row = row_head(of, budget);
      // Adding 0 turns -0 into 0.
      row.insert(row.end(),
                 {std::string(of.loops.open[open]->key),
                  threshold.value ? Value(sign * *threshold.value + 0.0) : Value(), threshold.cells, within,
                  within_kept, cells.size() - within, kept - within_kept});
      rows.push_back(std::move(row));
    }
  }
}

std::vector<ColumnInfo> agreement_columns() {
  return {
      {"open", "", "measure of the replay"},
      {"closed", "", "measure of the closed loop"},
      {"tau", "",
       "Kendall's tau-b over policies between their means over items; 1: the same order, better first; "
       "null: all are equal to one of the two"},
      {"tau_low", "", "low end of its bootstrap interval over items; null: too few, or no order"},
      {"tau_high", "", "its high end"},
      {"signs", "share",
       "of the pairs of policies that the closed loop tells apart, those that the replay puts in the same "
       "order; equal to the replay: half"},
      {"signs_low", "share", "low end of its bootstrap interval"},
      {"signs_high", "share", "its high end"},
      {"pairs", "pairs", "that the closed loop tells apart: the interval of the difference excludes 0"},
      {"policies", "policies", "that are ordered: those that ran on every item"},
      {"items", "items", "over which means are taken: where each of these policies has both measures"}};
}

std::vector<ColumnInfo> with_head(std::vector<ColumnInfo> columns) {
  std::vector<ColumnInfo> out = {{"workload", "", "kind of prompt; null: not known"},
                                 {"cut", "", "where the prompt ends for policies"},
                                 {"budget", "", "budget, as given"}};
  out.insert(out.end(), columns.begin(), columns.end());
  return out;
}

void add_agreement(const RankedWorkload& of, std::vector<std::vector<Value>>& rows) {
  const TraceSet items = of.judged.items_of(of.workload);
  for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget) {
    const std::vector<std::size_t> policies = of.judged.ran_on_all(of.workload, budget);
    for (const std::size_t closed : of.closed) {
      std::map<Shared, std::vector<std::pair<std::size_t, std::size_t>>> pairs_of;
      for (std::size_t open = 0; open < of.loops.open.size(); ++open) {
        const Shared shared = of.judged.shared(open, closed, budget, policies, items);
        if (shared.policies.size() < 2 || members(shared.items) == 0) continue;
        const Judged &by_open = of.judged.by_open(open, budget, shared),
                     &by_closed = of.judged.by_closed(closed, budget, shared);
        const auto [place, fresh] = pairs_of.try_emplace(shared);
        if (fresh) place->second = of.judged.distinguishable(by_closed);
        const Estimated tau = of.judged.tau(by_open, by_closed),
                        signs = of.judged.same_signs(by_open, by_closed, place->second);
        std::vector<Value> row = row_head(of, budget);
        row.insert(row.end(),
                   {std::string(of.loops.open[open]->key), std::string(of.loops.closed[closed]->key),
                    value_of(tau.value), value_of(tau.low), value_of(tau.high), value_of(signs.value),
                    value_of(signs.low), value_of(signs.high), std::uint64_t{place->second.size()},
                    std::uint64_t{shared.policies.size()}, members(shared.items)});
        rows.push_back(std::move(row));
      }
    }
  }
}

void check(const AgreementOptions& options) {
  const auto share = [](double value, const char* name) {
    if (!(value >= 0 && value <= 1)) usage_error(exact_text(value) + " is not from 0 to 1", name);
  };
  share(options.least_full, "least-full");
  share(options.kept, "kept");
  share(options.trusted, "trusted");
  if (options.resamples < 100 || options.resamples > 100000)
    usage_error(std::to_string(options.resamples) + " is not from 100 to 100000", "resamples");
  if (!(options.confidence >= 0.5 && options.confidence <= 0.999))
    usage_error(exact_text(options.confidence) + " is not from 0.5 to 0.999", "confidence");
}

std::string percent(double share) {
  return rounded_text(100 * share, 1) + " %";
}

/// Why a workload is not ranked at a cut; empty: it is.
std::string unranked(const LoopsAtCut& loops, const std::string& workload, const TraceSet& items,
                     double least) {
  const std::string where =
      (workload.empty() ? "Items of no known workload" : workload) + ", cut " + loops.cut + ": not ranked, ";
  if (least == 0) return "";
  double right = 0, known = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i] || std::isnan(loops.items[i].right_full)) continue;
    right += loops.items[i].right_full;
    known += 1;
  }
  if (known < static_cast<double>(members(items)))
    return where +
           "as it is not known whether the full cache answers: that needs items with answers and greedy mode "
           "(--least-full 0 ranks all).";
  if (right >= least * known) return "";
  return where + "as the full cache answers " + percent(right / known) + " of the items, below " +
         percent(least) + " (--least-full 0 ranks all).";
}

/// Policies that some item or other of a ranked workload did without, by budget.
using Absent = std::map<std::string, std::vector<std::string>>;

void find_absent(const RankedWorkload& of, Absent& absent) {
  for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget) {
    const std::vector<std::size_t> there = of.judged.ran_on_all(of.workload, budget);
    for (std::size_t policy = 0; policy < of.loops.policies.size(); ++policy) {
      if (std::ranges::find(there, policy) != there.end()) continue;
      add_once(absent[of.loops.policies[policy].label], of.loops.budgets[budget]);
    }
  }
}

}  // namespace

LoopAgreement empty_agreement() {
  LoopAgreement out;
  out.agreement.columns = with_head(agreement_columns());
  out.choices.columns = with_head(choice_columns());
  out.thresholds.columns = with_head(threshold_columns());
  return out;
}

LoopAgreement loop_agreement(const JoinedLoops& joined_loops, const AgreementOptions& options) {
  check(options);
  LoopAgreement out = empty_agreement();
  out.notes = joined_loops.notes;
  Absent absent;
  for (const LoopsAtCut& loops : joined_loops.cuts) {
    JudgedPolicies judged(loops, options.resamples, options.seed, options.confidence);
    std::set<std::string> workloads;
    for (const LoopsAtCut::Item& item : loops.items) workloads.insert(item.workload);
    RankedWorkload of{loops, judged, options, "", {}};
    for (const std::string& key : options.closed) {
      const ClosedMeasure& measure = closed_measure(key);
      const auto place = std::ranges::find(loops.closed, &measure);
      if (place == loops.closed.end()) bug("not joined by " + key);
      of.closed.push_back(static_cast<std::size_t>(place - loops.closed.begin()));
    }
    for (const std::string& workload : workloads) {
      of.workload = workload;
      const TraceSet items = judged.items_of(workload);
      if (const std::string why = unranked(loops, workload, items, options.least_full); !why.empty()) {
        out.notes.push_back(why);
        continue;
      }
      find_absent(of, absent);
      add_agreement(of, out.agreement.rows);
      for (const std::size_t closed : of.closed) Choice(of, closed).add_rows(out.choices.rows);
      add_thresholds(of, out.thresholds.rows);
    }
  }
  std::map<std::string, std::vector<std::string>> policies_at;
  for (const auto& [policy, budgets] : absent) policies_at[joined(budgets)].push_back(policy);
  for (const auto& [budgets, policies] : policies_at)
    out.notes.push_back("Not compared at " + budgets +
                        ", where some item has no answer through them: " + joined(policies) + '.');
  return out;
}

}  // namespace kvsim::analysis
