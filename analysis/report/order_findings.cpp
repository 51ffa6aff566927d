// What policies do: findings about their order.
#include <algorithm>
#include <set>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/price_findings.hpp"
#include "analysis/report/wins.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr double kSmallLoss = 0.05;
constexpr double kTracesAgree = 0.7, kTracesHardlyAgree = 0.4;  // of Kendall's W

/// "lowest attention loss", "highest importance retained".
std::string superlative(const Metric& metric) {
  return std::string(metric.better == Better::lower ? "lowest " : "highest ") + metric.label;
}

std::string mean_over_traces_text(const Metric& metric, const PolicyMean& mean) {
  return value_text(metric, mean.mean) + " (" + interval_text(metric, mean.low, mean.high) + "; " +
         count_text(mean.traces, "trace") + ")";
}

std::vector<std::string> labels(const std::vector<PolicyMean>& policies) {
  std::vector<std::string> out;
  for (const PolicyMean& each : policies) out.push_back(each.policy);
  return out;
}

bool single_trace(const std::vector<Win>& all) {
  return std::all_of(all.begin(), all.end(), [](const Win& win) { return win.best.front().traces < 2; });
}

/// How the next policy compares.
std::string lead_text(const Metric& metric, const Win& win) {
  if (!win.next) return {};
  std::string text = "; next is " + quoted_name(win.next->policy);
  if (!win.ahead)
    return text + " with " + value_text(metric, win.next->mean) + ", not compared trace by trace";
  const PairedDifference& ahead = *win.ahead;
  text += ", " + difference_text(metric, ahead.difference) +
          (metric.better == Better::lower ? " above" : " below") + " it";
  if (!ahead.low || !ahead.high) return text + ", with too few traces for an interval";
  return text + " (" + difference_interval_text(metric, *ahead.low, *ahead.high) + "), worse on " +
         std::to_string(ahead.worse) + " of " + count_text(ahead.traces, "trace");
}

std::string win_text(const Metric& metric, const Win& win) {
  std::string text = budget_text(win.budget) + ": " + names_text(labels(win.best), 3) +
                     (win.best.size() > 1 ? " (equal means)" : "") + ", " +
                     mean_over_traces_text(metric, win.best.front()) + lead_text(metric, win) + '.';
  if (!win.rivals.empty() && win.best.front().traces > 1)
    text += " Not distinguishable from the best: " + names_text(labels(win.rivals)) + '.';
  return text;
}

/// "`a` at 10% and 25%; `b` at 50%".
std::string winners_text(const std::vector<Win>& all) {
  std::vector<std::pair<std::string, std::vector<std::string>>> winners;
  for (const Win& win : all) {
    const std::string name = names_text(labels(win.best), 3);
    auto found = std::find_if(winners.begin(), winners.end(), [&](const auto& w) { return w.first == name; });
    if (found == winners.end()) found = winners.insert(winners.end(), {name, {}});
    found->second.push_back(budget_text(win.budget));
  }
  if (winners.size() == 1 && all.size() > 1)
    return winners.front().first + " at every studied budget (" + std::to_string(all.size()) + ")";
  std::string text;
  for (const auto& [name, budgets] : winners)
    text += (text.empty() ? "" : "; ") + name + " at " + listed(budgets);
  return text;
}

std::string clearness_text(const std::vector<Win>& all) {
  const auto contested =
      std::count_if(all.begin(), all.end(), [](const Win& win) { return win.next.has_value(); });
  const auto clear = std::count_if(all.begin(), all.end(), [](const Win& win) { return win.clear(); });
  if (contested == 0) return "No other policy was compared.";
  if (clear == 0) return "Nowhere is the best distinguishable from the next.";
  if (clear == contested)
    return contested == 1 ? "The best is distinguishable from the next."
                          : "At each of these budgets the best is distinguishable from the next.";
  return "The best is distinguishable from the next at " + std::to_string(clear) + " of " +
         count_text(static_cast<std::uint64_t>(contested), "budget") + '.';
}

/// The oracle row that is best among those over as many traces as the best policy.
std::optional<PolicyMean> best_oracle(const Evidence& evidence, const Metric& metric, const Win& win) {
  std::optional<PolicyMean> best;
  for (const PolicyMean& each : evidence.means({metric.key, kAllWorkloads, win.budget})) {
    if (each.role != "oracle" || each.traces != win.best.front().traces) continue;
    if (!best || metric.prefers(each.mean, best->mean)) best = each;
  }
  return best;
}

}  // namespace

Findings best_policies(const Evidence& evidence, const Metric& metric, const PriceList& prices) {
  const std::vector<Win> all = wins(evidence, metric);
  if (all.empty()) return {};
  Finding finding;
  for (const Win& win : all) finding.details.push_back(win_text(metric, win) + price_text(win, prices));
  if (single_trace(all)) {
    finding.text = "One trace cannot tell which policy is better. On this trace the " + superlative(metric) +
                   " belongs to " + winners_text(all) + '.' + winners_price_text(all, prices);
    return {finding};
  }
  finding.text = capitalised(superlative(metric)) + ", on average over traces: " + winners_text(all) + ". " +
                 clearness_text(all) + winners_price_text(all, prices);
  return {finding};
}

Findings room_left(const Evidence& evidence, const Metric& metric) {
  Finding finding;
  std::optional<double> least, most;
  bool bounded = true;  // everywhere
  for (const Win& win : wins(evidence, metric)) {
    const PolicyMean& best = win.best.front();
    const auto oracle =
        metric.oracles_aim_at_it ? best_oracle(evidence, metric, win) : std::optional<PolicyMean>();
    const auto ideal = evidence.best_set(metric.key, win.budget, best.params);
    const auto bound = evidence.bound(metric.key, win.budget, best.params);
    if (!oracle && !ideal && !bound) continue;
    std::string text =
        budget_text(win.budget) + ": " + quoted_name(best.policy) + ' ' + value_text(metric, best.mean);
    if (oracle)
      text += ", oracle " + quoted_name(oracle->policy) + ' ' + value_text(metric, oracle->mean) + " (" +
              interval_text(metric, oracle->low, oracle->high) + ")";
    if (ideal)
      text += (metric.oracles_aim_at_it ? ", the best tokens chosen anew at each step at its own split "
                                        : ", the best set of the size at its own split ") +
              value_text(metric, *ideal);
    if (bound)
      text += (metric.oracles_aim_at_it ? ", the best schedule that holds no more, at any split "
                                        : ", the best set at any split ") +
              value_text(metric, *bound);
    const bool beaten = oracle && metric.prefers(best.mean, oracle->mean);
    if (beaten)
      text +=
          ". The oracle bounds what holds no more than it does in every lane; this policy splits the budget "
          "otherwise, or holds more";
    finding.details.push_back(text + '.');
    if (beaten && !bound) continue;
    const double room = std::abs(best.mean - (bound ? *bound : oracle ? oracle->mean : *ideal));
    bounded = bounded && bound;
    least = std::min(least.value_or(room), room);
    most = std::max(most.value_or(room), room);
  }
  if (finding.details.empty()) return {};
  if (!least) {
    finding.text = "No oracle does better than the best policy.";
    return {finding};
  }
  finding.text =
      std::string("Room left: between the best policy and the best ") +
      (metric.oracles_aim_at_it ? "that knows the future" : "set of the size") +
      (bounded ? ", at any split of the budget," : ", at its own split of the budget,") + " lie " +
      (*least == *most ? difference_text(metric, *least) : difference_interval_text(metric, *least, *most)) +
      " of " + metric.label + (finding.details.size() > 1 ? ", depending on the budget." : ".");
  return {finding};
}

Findings stability(const Evidence& evidence, const Metric& metric) {
  Finding finding;
  std::optional<double> least, most;
  for (const std::string& budget : evidence.budgets()) {
    const std::vector<PolicyRank>& ranks = evidence.ranks({metric.key, kAllWorkloads, budget});
    if (ranks.empty() || !ranks.front().concordance || ranks.front().traces < 2) continue;
    const double agreement = *ranks.front().concordance;
    least = std::min(least.value_or(agreement), agreement);
    most = std::max(most.value_or(agreement), agreement);
    const PolicyRank& first = *std::min_element(
        ranks.begin(), ranks.end(), [](const PolicyRank& a, const PolicyRank& b) { return a.rank < b.rank; });
    std::string text = budget_text(budget) + ": W = " + rounded_text(agreement, 2) + " for " +
                       std::to_string(ranks.size()) + " policies on " + count_text(first.traces, "trace");
    if (first.low && first.high)
      text += "; the rank of " + quoted_name(first.policy) + " is between " + rounded_text(*first.low, 1) +
              " and " + rounded_text(*first.high, 1);
    finding.details.push_back(text + '.');
  }
  if (!least) return {};
  const std::string range =
      *least == *most ? rounded_text(*least, 2) : rounded_text(*least, 2) + " to " + rounded_text(*most, 2);
  finding.text = *least >= kTracesAgree       ? "Traces agree on the order of policies"
                 : *most < kTracesHardlyAgree ? "Traces hardly agree on the order of policies"
                                              : "Traces agree on the order of policies in part";
  finding.text +=
      ": Kendall's W is " + range + (finding.details.size() > 1 ? ", depending on the budget." : ".");
  return {finding};
}

namespace {

/// Whether `local` is better than `general` beyond doubt within a workload: by the paired difference or,
/// where the tables have none, by intervals that do not touch.
bool surely_better(const Evidence& evidence, const Metric& metric, const Question& question,
                   const PolicyMean& local, const PolicyMean& general) {
  if (const auto paired = evidence.difference(question, local.params, general.params))
    return paired->distinguishable() && metric.prefers(paired->difference, 0);
  if (!local.low || !local.high || !general.low || !general.high) return false;
  return metric.better == Better::lower ? *local.high < *general.low : *local.low > *general.high;
}

const PolicyMean* with_params(const std::vector<PolicyMean>& all, const std::string& params) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const PolicyMean& m) { return m.params == params; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

Findings workloads_apart(const Evidence& evidence, const Metric& metric) {
  Finding finding;
  std::set<std::string> apart, compared;
  for (const Win& win : wins(evidence, metric)) {
    for (const std::string& workload : evidence.workloads()) {
      const Question question{metric.key, workload, win.budget};
      const std::vector<PolicyMean> inside = contest(evidence, question, metric);
      const PolicyMean* general = with_params(inside, win.best.front().params);
      if (general == nullptr || general->traces < 2) continue;
      compared.insert(workload);
      const PolicyMean& local = inside.front();
      if (!surely_better(evidence, metric, question, local, *general)) continue;
      apart.insert(workload);
      finding.details.push_back(quoted_name(workload) + " at " + budget_text(win.budget) + ": " +
                                quoted_name(local.policy) + ' ' + mean_over_traces_text(metric, local) +
                                ", where " + quoted_name(general->policy) + ", best over all, has " +
                                value_text(metric, general->mean) + " (" +
                                interval_text(metric, general->low, general->high) + ").");
    }
  }
  if (compared.size() < 2) return {};
  const std::string of_all = " of " + count_text(compared.size(), "workload");
  finding.text = apart.empty()
                     ? "In none" + of_all +
                           " is another policy distinguishably better than the one that is best over all."
                     : "The policy to choose depends on the workload: in " + std::to_string(apart.size()) +
                           of_all + " (" + names_text({apart.begin(), apart.end()}) +
                           ") another policy is distinguishably better, at some budget, than the one that is "
                           "best over all.";
  return {finding};
}

namespace {

/// How much alike the orders of the policies are that both cuts can compare.
struct Orders {
  std::size_t policies = 0;
  std::optional<double> tau{};
  std::string best_here, best_there;
};

Orders orders_at(const Evidence& here, const Evidence& there, const Metric& metric,
                 const std::string& budget) {
  const Question question{metric.key, kAllWorkloads, budget};
  const std::vector<PolicyMean> a = contest(here, question, metric), b = contest(there, question, metric);
  std::vector<double> of_a, of_b;
  for (const PolicyMean& each : a) {
    const PolicyMean* other = with_params(b, each.params);
    if (other == nullptr) continue;
    of_a.push_back(each.mean);
    of_b.push_back(other->mean);
  }
  Orders out{of_a.size(), kendall_tau(of_a, of_b), {}, {}};
  if (out.tau) {
    out.best_here = a.front().policy;
    out.best_there = b.front().policy;
  }
  return out;
}

std::string cut_name(const Evidence& evidence) {
  return "cut " + quoted_name(evidence.cut());
}

/// "turns round at 10%; changes in part at 20% and 50%".
std::string change_text(const std::vector<std::string>& round, const std::vector<std::string>& part,
                        const std::vector<std::string>& same) {
  std::vector<std::string> items;
  if (!round.empty()) items.push_back("turns round at " + listed(round));
  if (!part.empty()) items.push_back("changes in part at " + listed(part));
  if (!same.empty()) items.push_back("stays much the same at " + listed(same));
  return joined(items, "; ");
}

}  // namespace

Findings orders_between_cuts(const std::vector<Evidence>& cuts, const Metric& metric) {
  constexpr double kMuchTheSame = 0.7;  // of Kendall's tau
  Findings out;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    const Evidence &here = cuts.front(), &there = cuts[i];
    Finding finding;
    std::vector<std::string> round, part, same;
    for (const std::string& budget : here.budgets()) {
      const Orders orders = orders_at(here, there, metric, budget);
      if (!orders.tau) continue;
      (*orders.tau < 0 ? round : *orders.tau < kMuchTheSame ? part : same).push_back(budget_text(budget));
      finding.details.push_back(budget_text(budget) + ": tau = " + rounded_text(*orders.tau, 2) + " over " +
                                std::to_string(orders.policies) + " policies; best at " + cut_name(here) +
                                " is " + quoted_name(orders.best_here) + ", at " + cut_name(there) + ' ' +
                                quoted_name(orders.best_there) + '.');
    }
    if (finding.details.empty()) continue;
    finding.text = "From " + cut_name(here) + " (" + cut_meaning(here.cut()) + ") to " + cut_name(there) +
                   " (" + cut_meaning(there.cut()) + "), the order of policies by " + metric.label + ' ' +
                   change_text(round, part, same) + " (Kendall's tau below 0; below 0.7; at least 0.7).";
    out.push_back(std::move(finding));
  }
  return out;
}

Findings sufficient_budget(const Evidence& evidence) {
  const Metric& metric = analysis::metric("attention_loss");
  const std::vector<Win> all = wins(evidence, metric);
  if (all.empty() || single_trace(all)) return {};
  const std::string limit = rounded_text(100 * kSmallLoss) + "%";
  for (const Win& win : all) {
    const PolicyMean& best = win.best.front();
    if (best.mean >= kSmallLoss) continue;
    const std::vector<PolicyMean> contestants =
        contest(evidence, {metric.key, kAllWorkloads, win.budget}, metric);
    const auto below = std::count_if(contestants.begin(), contestants.end(),
                                     [](const PolicyMean& m) { return m.mean < kSmallLoss; });
    const bool doubtful = !best.high || *best.high >= kSmallLoss;
    return {
        {"The smallest studied budget at which a policy loses less than " + limit + " of attention is " +
         budget_text(win.budget) + ": " + quoted_name(best.policy) + ", " +
         mean_over_traces_text(metric, best) + "; " + std::to_string(below) + " of " +
         std::to_string(contestants.size()) + " policies do." +
         (doubtful ? " That it is less is not certain: the interval does not rule out " + limit + "." : "")}};
  }
  const Win& least = *std::min_element(all.begin(), all.end(), [](const Win& a, const Win& b) {
    return a.best.front().mean < b.best.front().mean;
  });
  return {{"At no studied budget does a policy lose less than " + limit + " of attention. The least is " +
           mean_over_traces_text(metric, least.best.front()) + ", by " +
           quoted_name(least.best.front().policy) + " at " + budget_text(least.budget) + '.'}};
}

namespace {

/// Policies whose difference to a baseline is not surely an improvement.
struct AgainstBaseline {
  std::vector<std::string> worse, undecided;
  std::size_t compared = 0;
};

AgainstBaseline against(const Evidence& evidence, const Metric& metric, const Question& question,
                        const PolicyMean& baseline) {
  AgainstBaseline out;
  for (const PolicyMean& each : contest(evidence, question, metric)) {
    if (each.params == baseline.params) continue;
    const auto paired = evidence.difference(question, each.params, baseline.params);
    if (!paired || !paired->low) continue;
    ++out.compared;
    if (!paired->distinguishable())
      out.undecided.push_back(each.policy);
    else if (metric.prefers(0, paired->difference))
      out.worse.push_back(each.policy);
  }
  return out;
}

Findings against_baseline(const Evidence& evidence, const Metric& metric, const std::string& name) {
  Finding finding;
  std::vector<std::string> not_better;  // somewhere
  for (const std::string& budget : evidence.budgets()) {
    const Question question{metric.key, kAllWorkloads, budget};
    const std::vector<PolicyMean> all = contest(evidence, question, metric);
    // The plain policy, without allocation: its label starts with its name.
    const auto baseline = std::find_if(all.begin(), all.end(), [&](const PolicyMean& m) {
      return m.policy == name || m.policy.starts_with(name + "(");
    });
    if (baseline == all.end()) continue;
    const AgainstBaseline found = against(evidence, metric, question, *baseline);
    if (found.compared == 0) continue;
    const std::size_t better = found.compared - found.worse.size() - found.undecided.size();
    for (const std::vector<std::string>* names : {&found.worse, &found.undecided})
      for (const std::string& each : *names)
        if (std::find(not_better.begin(), not_better.end(), each) == not_better.end())
          not_better.push_back(each);
    std::string text = budget_text(budget) + ": " + quoted_name(baseline->policy) + ' ' +
                       mean_over_traces_text(metric, *baseline) + "; " + std::to_string(better) + " of " +
                       std::to_string(found.compared) + " policies are better.";
    if (!found.undecided.empty()) text += " Not distinguishable: " + names_text(found.undecided) + '.';
    if (!found.worse.empty()) text += " Worse: " + names_text(found.worse) + '.';
    finding.details.push_back(text);
  }
  if (finding.details.empty()) return {};
  finding.text =
      "Sanity check against " + quoted_name(name) + ": " +
      (not_better.empty() ? "every other policy is distinguishably better at every budget."
                          : "at some budget, " + names_text(not_better) +
                                (not_better.size() == 1 ? " is" : " are") + " not distinguishably better.");
  return {finding};
}

}  // namespace

Findings against_baselines(const Evidence& evidence, const Metric& metric) {
  Findings out = against_baseline(evidence, metric, "random");
  for (Finding& finding : against_baseline(evidence, metric, "window")) out.push_back(std::move(finding));
  return out;
}

}  // namespace kvsim::analysis
