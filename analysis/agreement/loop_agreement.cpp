#include "analysis/agreement/loop_agreement.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/agreement/accuracy_thresholds.hpp"
#include "analysis/agreement/loop_choices.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/trace_groups.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

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
      if (std::find(there.begin(), there.end(), policy) != there.end()) continue;
      std::vector<std::string>& budgets = absent[of.loops.policies[policy].label];
      const std::string& name = of.loops.budgets[budget];
      if (std::find(budgets.begin(), budgets.end(), name) == budgets.end()) budgets.push_back(name);
    }
  }
}

}  // namespace

std::vector<Value> row_head(const RankedWorkload& of, std::size_t budget) {
  return {of.workload.empty() ? Value() : Value(of.workload), of.loops.cut, of.loops.budgets[budget]};
}

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
      const auto place = std::find(loops.closed.begin(), loops.closed.end(), &measure);
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
      add_choices(of, out.choices.rows);
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
