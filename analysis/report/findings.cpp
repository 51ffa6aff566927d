#include "analysis/report/findings.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/replay_document.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

void append(Findings& all, Findings more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// In the order of the rules: a finding that every cut has is one, others name the cut.
Findings told_once(const std::vector<Findings>& by_cut, const std::vector<Evidence>& cuts) {
  Findings out;
  const auto same = [](const Finding& a) {
    return [&a](const Finding& b) { return a.text == b.text && a.details == b.details; };
  };
  std::size_t longest = 0;
  for (const Findings& findings : by_cut) longest = std::max(longest, findings.size());
  for (std::size_t i = 0; i < longest; ++i) {
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      if (i >= by_cut[c].size()) continue;
      Finding finding = by_cut[c][i];
      const bool everywhere = std::ranges::all_of(
          by_cut, [&](const Findings& findings) { return std::ranges::any_of(findings, same(finding)); });
      if (!everywhere) finding.text = capitalised(cut_title(cuts[c].cut())) + ". " + finding.text;
      if (std::ranges::none_of(out, same(finding))) out.push_back(std::move(finding));
    }
  }
  return out;
}

}  // namespace

Findings what_limits(const std::vector<Evidence>& cuts, const Records& results, const Records& skipped) {
  std::vector<Findings> by_cut;
  for (const Evidence& evidence : cuts) {
    const Records rows = at_cut(results, evidence.cut());
    Findings& here = by_cut.emplace_back(open_loop(evidence));
    append(here, few_traces(evidence));
    append(here, unequal_lengths(evidence));
    append(here, beyond_budget(rows));
    append(here, never_evicted(rows));
  }
  Findings all = told_once(by_cut, cuts);
  append(all, instruction_before(results));
  append(all, same_results(results));
  append(all, skipped_cells(skipped));
  return all;
}

namespace {

constexpr double kCredibleMass = 0.9;
constexpr std::uint64_t kFewTraces = 5;

Findings without_measured_steps(const Evidence& evidence) {
  const Metric* metric = evidence.leading_metric();
  if (metric == nullptr) return {};
  return {
      {std::string("Replay is open loop, and no step of these traces was measured: what a policy costs while "
                   "generating, attention loss and retained mass, is not known. Policies are compared by ") +
       metric->label + "."}};
}

/// Retained mass of the policies of one budget.
struct Retained {
  std::vector<std::string> below;  ///< those under kCredibleMass
  std::size_t policies = 0;
  double least = 1, most = 0;
};

Retained retained_at(const Evidence& evidence, const std::string& budget) {
  Retained out;
  for (const PolicyMean& each : evidence.means({"attention_loss", kAllWorkloads, budget})) {
    if (each.role != "policy") continue;
    const double mass = 1 - each.mean;
    ++out.policies;
    out.least = std::min(out.least, mass);
    out.most = std::max(out.most, mass);
    if (mass < kCredibleMass) out.below.push_back(each.policy);
  }
  return out;
}

/// "every policy at 10%; some policies at 25% and 50%".
std::string bitten_text(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  std::string text = all.empty() ? "" : "every policy at " + listed(all);
  if (!some.empty()) text += (text.empty() ? "" : "; ") + ("some policies at " + listed(some));
  return text.empty() ? "nowhere in this study" : text;
}

std::string mass_text(double mass) {
  return value_text(metric("attention_loss"), mass);  // its complement, a share too
}

}  // namespace

Findings open_loop(const Evidence& evidence) {
  Finding finding;
  std::vector<std::string> all, some;  // budgets, by how many policies are below
  for (const std::string& budget : evidence.budgets()) {
    const Retained found = retained_at(evidence, budget);
    if (found.policies == 0) continue;
    std::string text = budget_text(budget) + ": mean retained mass " +
                       (found.policies == 1 ? mass_text(found.most)
                                            : mass_text(found.least) + " to " + mass_text(found.most)) +
                       "; " + std::to_string(found.below.size()) + " of " + std::to_string(found.policies) +
                       " policies below 90%";
    if (!found.below.empty()) {
      const bool everyone = found.below.size() == found.policies;
      (everyone ? all : some).push_back(budget_text(budget));
      if (!everyone) text += ": " + names_text(found.below);
    }
    finding.details.push_back(text + '.');
  }
  if (finding.details.empty()) return without_measured_steps(evidence);
  finding.text =
      "Replay is open loop: it answers each recorded query exactly, and does not see how the answer would "
      "have changed later tokens. Where a policy retains less than 90% of attention, its numbers tell what "
      "was "
      "lost, no longer what a real run would do: " +
      bitten_text(all, some) + '.';
  return {finding};
}

Findings few_traces(const Evidence& evidence) {
  std::map<std::string, std::uint64_t> traces;
  const Metric* metric = evidence.leading_metric();
  if (metric == nullptr) return {};
  const auto count = [&](const std::string& workload) {
    std::uint64_t most = 0;
    for (const std::string& budget : evidence.budgets())
      for (const PolicyMean& each : evidence.means({metric->key, workload, budget}))
        most = std::max(most, each.traces);
    return most;
  };
  if (const std::uint64_t all = count(kAllWorkloads); all == 1) {
    return {
        {"A single trace is an anecdote: there are no intervals, and no order of policies follows from it."}};
  } else if (all < kFewTraces) {
    return {{"Only " + count_text(all, "trace") + ": intervals from fewer than " +
             std::to_string(kFewTraces) + " are rough, and rather too narrow."}};
  }
  std::vector<std::string> small;
  for (const std::string& workload : evidence.workloads())
    if (const std::uint64_t n = count(workload); n > 0 && n < kFewTraces)
      small.push_back(quoted_name(workload) + " (" + std::to_string(n) + ")");
  if (small.empty()) return {};
  return {{"Few traces of a workload: intervals within " + listed(small) +
           " are rough, and rather too narrow; with one "
           "trace there is none."}};
}

Findings unequal_lengths(const Evidence& evidence) {
  const Metric* metric = evidence.leading_metric();
  if (metric == nullptr) return {};
  std::uint64_t shortest = ~0ULL, longest = 0;
  for (const std::string& budget : evidence.budgets()) {
    for (const PolicyMean& each : evidence.means({metric->key, kAllWorkloads, budget})) {
      shortest = std::min(shortest, each.prompt_min);
      longest = std::max(longest, each.prompt_max);
    }
  }
  if (longest < shortest || alike_lengths(shortest, longest)) return {};
  return {{"Prompts differ in length, " + std::to_string(shortest) + " to " + std::to_string(longest) +
           " tokens, and means pool them: a budget in tokens or bytes is another share of each."}};
}

Findings beyond_budget(const Records& results) {
  if (results.rows.empty()) return {};
  std::map<std::string, double> most;  // tokens per lane beyond the budget, on any trace at any budget
  for (const std::vector<Value>& fields : results.rows) {
    const RowFields row(results, fields);
    const auto budget = row.number("budget_tokens"), tokens = row.number("held_tokens");
    if (row.text("scope") != "all" || row.text("role") != "policy" || !budget || !tokens) continue;
    double& beyond = most.try_emplace(row.text("policy"), 0.0).first->second;
    beyond = std::max(beyond, *tokens - *budget);
  }
  std::map<std::uint64_t, std::vector<std::string>, std::greater<>> by_excess;
  std::size_t beyond = 0;
  for (const auto& [name, tokens] : most) {
    if (tokens < 0.5) continue;  // roundings of shares
    ++beyond;
    by_excess[static_cast<std::uint64_t>(std::lround(tokens))].push_back(name);
  }
  if (beyond == 0) return {};
  Finding finding;
  finding.text =
      std::to_string(beyond) + " of " + std::to_string(most.size()) +
      " policies end with more tokens than the budget: they keep every generated token, evict in blocks, or "
      "spend a total of their own. Against those that hold the budget they have the advantage of "
      "that memory.";
  for (const auto& [tokens, names] : by_excess)
    finding.details.push_back("Up to " + count_text(tokens, "token") +
                              " per lane more: " + names_text(names, names.size()) + '.');
  return {finding};
}

Findings never_evicted(const Records& results) {
  if (results.rows.empty()) return {};
  std::vector<std::pair<std::string, std::vector<std::string>>> budgets;  // by policy
  for (const std::vector<Value>& fields : results.rows) {
    const RowFields row(results, fields);
    if (row.text("scope") != "all" || row.text("role") != "policy" || row.number("evicted_tokens") != 0.0)
      continue;
    const std::string policy = row.text("policy");
    auto found = std::ranges::find_if(budgets, [&](const auto& each) { return each.first == policy; });
    if (found == budgets.end()) found = budgets.insert(budgets.end(), {policy, {}});
    if (const std::string at = budget_text(row.text("budget")); !at.empty()) add_once(found->second, at);
  }
  if (budgets.empty()) return {};
  Finding finding;
  std::vector<std::string> names;
  for (const auto& [name, at] : budgets) {
    names.push_back(name);
    finding.details.push_back(quoted_name(name) + " at " + listed(at) + '.');
  }
  finding.text = "On some trace, at some budget, " + names_text(names) +
                 " never evicted: what is lost there is nothing, whatever the rule.";
  return {finding};
}

Findings instruction_before(const Records& results) {
  if (results.rows.empty()) return {};
  const std::size_t column = results.column("instruction_before");
  std::optional<double> least, most;
  for (const std::vector<Value>& row : results.rows) {
    const auto tokens = number(row[column]);
    if (!tokens || *tokens == 0) continue;
    least = std::min(least.value_or(*tokens), *tokens);
    most = std::max(most.value_or(*tokens), *tokens);
  }
  if (!most) return {};
  const auto whole = [](double tokens) { return std::to_string(std::llround(tokens)); };
  return {
      {"Before the context stand " + (*least == *most ? "" : whole(*least) + " to ") +
       count_text(static_cast<std::uint64_t>(*most), "token") +
       " of instruction, which are part of the prompt at every cut: what they ask is known to the policy."}};
}

Findings same_results(const Records& results) {
  if (results.rows.empty()) return {};
  std::map<std::string, std::string> label;
  const std::size_t policy = results.column("policy"), params = results.column("params");
  for (const std::vector<Value>& row : results.rows) label.try_emplace(text(row[params]), text(row[policy]));
  Finding finding;
  for (const std::vector<std::string>& group : identical_policies(results)) {
    std::vector<std::string> names;
    for (const std::string& each : group) names.push_back(label.at(each));
    finding.details.push_back(names_text(names, 12) + '.');
  }
  if (finding.details.empty()) return {};
  finding.text =
      (finding.details.size() == 1 ? std::string("One group of policies")
                                   : std::to_string(finding.details.size()) + " groups of policies") +
      " gave identical results everywhere: a parameter without effect here, or the same policy "
      "under several names. Ranks count them as several.";
  return {finding};
}

namespace {

/// The reason without what differs from trace to trace: its numbers.
std::string kind_of(const std::string& reason) {
  std::string kind;
  for (const char c : reason)
    if (c < '0' || c > '9')
      kind += c;
    else if (kind.empty() || kind.back() != '#')
      kind += '#';
  return kind;
}

struct SkippedFor {
  std::string reason;  ///< of the first
  std::vector<std::string> what, budgets;
  std::size_t rows = 0;
  bool varies = false;
};

/// A reason and its remedy stand on lines of their own.
std::string without_breaks(const std::string& reason) {
  std::string out;
  for (std::size_t at = 0; at < reason.size();) {
    const std::size_t end = std::min(reason.find('\n', at), reason.size());
    out += (out.empty() ? "" : ". ") + reason.substr(at, end - at);
    at = std::min(reason.find_first_not_of("\n ", end), reason.size());
  }
  return out;
}

std::string skipped_text(const SkippedFor& group) {
  return names_text(group.what) + (group.budgets.empty() ? "" : " at " + listed(group.budgets)) + ", " +
         count_text(group.rows, "time") + (group.varies ? ", for example: " : ": ") +
         without_breaks(group.reason);
}

}  // namespace

Findings skipped_cells(const Records& skipped) {
  if (skipped.rows.empty()) return {};
  std::map<std::string, SkippedFor> groups;
  for (const std::vector<Value>& fields : skipped.rows) {
    const RowFields row(skipped, fields);
    const std::string why = row.text("reason"), ran = row.text("policy"), looked = row.text("analysis"),
                      at_cut = row.text("cut");
    SkippedFor& group = groups.try_emplace(kind_of(why), SkippedFor{why, {}, {}}).first->second;
    add_once(group.what, !ran.empty()      ? ran
                         : !looked.empty() ? "analysis " + looked
                         : !at_cut.empty() ? "cut " + at_cut
                                           : "trace " + row.text("trace"));
    if (const std::string at = row.text("budget"); !at.empty()) add_once(group.budgets, budget_text(at));
    ++group.rows;
    group.varies = group.varies || why != group.reason;
  }
  Finding finding;
  for (const auto& [kind, group] : groups) finding.details.push_back(skipped_text(group));
  finding.text =
      "Not everything could be run: " + count_text(skipped.rows.size(), "cell") +
      " (a policy at a budget on a trace, a cut of one, or an analysis) " +
      (skipped.rows.size() == 1 ? "has" : "have") +
      " no numbers. A policy that ran on fewer traces than others at a budget is not compared there.";
  return {finding};
}

Findings failed_workloads(const std::vector<FullAnswers>& accuracies, double least_full) {
  Finding finding;
  std::vector<std::string> names;
  const Metric& right = answer_metric("right");
  for (const FullAnswers& each : accuracies) {
    if (each.share() >= least_full) continue;
    add_once(names, each.workload);
    finding.details.push_back(
        quoted_name(each.workload) + ", " + cut_title(each.cut) + ": the full cache answers " +
        std::to_string(each.right) + " of " + count_text(each.asked, "question") + " right, " +
        value_text(right, each.share()) + (each.enough_kept() ? "; accuracy kept is over those." : "."));
  }
  if (names.empty()) return {};
  finding.text = "Policies are not ranked by the answers to " + names_text(names) +
                 ", which the full cache itself answers right too seldom: less than " +
                 value_text(right, least_full) + " of the items.";
  return {finding};
}

}  // namespace kvsim::analysis
