#include "analysis/statistics/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "analysis/results/cell_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/trace_values.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

void check(const StatisticsOptions& options) {
  if (options.resamples < 100 || options.resamples > 100000)
    usage_error(std::to_string(options.resamples) + " is not from 100 to 100000", "resamples");
  if (!(options.confidence >= 0.5 && options.confidence <= 0.999))
    usage_error(exact_text(options.confidence) + " is not from 0.5 to 0.999", "confidence");
}

void append(Records& all, Records more) {
  for (std::vector<Value>& row : more.rows) all.rows.push_back(std::move(row));
}

/// What is to be said at every cut is said once, anything else beside its cut.
std::vector<std::string> told_once(const std::map<std::string, std::vector<std::string>>& notes_by_cut,
                                   const std::vector<std::string>& cuts) {
  std::map<std::string, std::size_t> told;
  for (const auto& [cut, notes] : notes_by_cut)
    for (const std::string& note : notes) ++told[note];
  std::vector<std::string> out;
  for (const std::string& cut : cuts) {
    for (const std::string& note : notes_by_cut.at(cut)) {
      const std::string text = told[note] == cuts.size() ? note : "Cut " + cut + ": " + note;
      if (std::ranges::find(out, text) == out.end()) out.push_back(text);
    }
  }
  return out;
}

}  // namespace

bool alike_lengths(std::uint64_t shortest, std::uint64_t longest) {
  // Prompts made for one length differ by a word.
  return longest <= shortest + std::max<std::uint64_t>(2, shortest / 100);
}

namespace {

/// Metrics by budget and policy.
using Unranked = std::map<std::string, std::map<std::string, std::set<std::string>>>;

void note_lengths(std::vector<std::string>& notes, const TraceValues& study,
                  const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const auto [shortest, longest] = prompts_of(group.traces, study.traces());
    if (alike_lengths(shortest, longest)) continue;
    notes.push_back("Workload " + group.workload + " pools prompts of " + std::to_string(shortest) + " to " +
                    std::to_string(longest) +
                    " tokens: a budget in tokens or bytes is another share of each.");
  }
}

void note_sizes(std::vector<std::string>& notes, const Resamples& resamples,
                const std::vector<Group>& groups) {
  constexpr std::uint64_t kRough = 5;
  std::vector<std::string> single, rough;
  for (const Group& group : groups) {
    const std::uint64_t n = members(group.traces);
    if (n < kRough) rough.push_back(group.workload + " (" + std::to_string(n) + ")");
    if (!resamples.has_intervals(group.traces)) single.push_back(group.workload);
  }
  if (!single.empty())
    notes.push_back("No interval for " + joined(single) +
                    ": with a single trace of a workload nothing tells how much it varies.");
  if (!rough.empty())
    notes.push_back("Intervals from fewer than " + std::to_string(kRough) +
                    " traces are rough, and rather too narrow: " + joined(rough) + ".");
}

void note_unranked(std::vector<std::string>& notes, const TraceValues& study, const Unranked& unranked) {
  for (const std::string& budget : study.budgets()) {
    const auto found = unranked.find(budget);
    if (found == unranked.end()) continue;
    std::map<std::vector<std::string>, std::vector<std::string>> policies_by_metrics;
    for (const auto& [policy, metrics] : found->second)
      policies_by_metrics[{metrics.begin(), metrics.end()}].push_back(policy);
    for (const auto& [metrics, policies] : policies_by_metrics)
      notes.push_back("Not ranked at " + budget + " by " + joined(metrics) +
                      ", for want of a value in some trace where others have one: " + joined(policies) + ".");
  }
}

/// Groups of prompts of unlike lengths, groups with few traces, and policies without a rank, in this order.
std::vector<std::string> statistics_notes(const TraceValues& study, const std::vector<Group>& groups,
                                          const Resamples& resamples, const Unranked& unranked) {
  std::vector<std::string> notes;
  note_lengths(notes, study, groups);
  note_sizes(notes, resamples, groups);
  note_unranked(notes, study, unranked);
  return notes;
}

using Fields = std::vector<Value>;

/// Of more policies all pairs would be a table of millions of rows.
constexpr std::size_t kMostPaired = 100;

/// Rank 1 is the best.
std::vector<double> ranks_by(const Metric& metric, std::vector<double> values) {
  if (metric.better == Better::higher)
    for (double& value : values) value = -value;
  return average_ranks(values);
}

/// A policy at one metric and budget, on the traces of a group where it has a value.
struct Sample {
  const TraceValues::Policy* policy = nullptr;
  std::span<const double> values{};  ///< one per trace of the study
  std::span<const double> runs{};    ///< of every seed of each trace
  TraceSet traces{};
  std::vector<double> means{};  ///< of the resamples; empty: no interval
};

/// The three tables, and what must be known to read them.
class CutStatistics {
 public:
  CutStatistics(const TraceValues& study, const StatisticsOptions& options, const std::string& cut)
      : study_(study),
        cut_(cut),
        options_(options),
        made_(empty_statistics()),
        resamples_(workloads(), options.resamples, options.seed, study.runs()) {}

  Statistics make() {
    const std::vector<Group> groups = groups_of(study_.traces());
    for (std::size_t m = 0; m < study_.metrics().size(); ++m)
      for (const Group& group : groups)
        for (std::size_t budget = 0; budget < study_.budgets().size(); ++budget) add(m, group, budget);
    made_.notes = statistics_notes(study_, groups, resamples_, unranked_);
    if (only_with_best_)
      made_.notes.push_back("Differences are those with the best of each metric and budget: of more than " +
                            std::to_string(kMostPaired) + " policies not every pair is compared.");
    return std::move(made_);
  }

 private:
  std::vector<std::string> workloads() const {
    std::vector<std::string> out;
    for (const TraceValues::Trace& trace : study_.traces()) out.push_back(trace.workload);
    return out;
  }

  void add(std::size_t m, const Group& group, std::size_t budget) {
    metric_ = study_.metrics()[m];
    key_ = {Value(metric_->key), Value(cut_), Value(group.workload), Value(study_.budgets()[budget])};
    std::vector<Sample> samples;
    for (std::size_t p = 0; p < study_.policies().size(); ++p) {
      Sample sample{
          &study_.policies()[p], study_.values(m, budget, p), study_.run_values(m, budget, p), {}, {}};
      for (std::size_t i = 0; i < group.traces.size(); ++i)
        sample.traces.push_back(group.traces[i] && !std::isnan(sample.values[i]));
      if (members(sample.traces) == 0) continue;
      if (resamples_.has_intervals(sample.traces))
        sample.means = resamples_.means(sample.traces, sample.runs);
      add_mean(sample);
      samples.push_back(std::move(sample));
    }
    std::erase_if(samples, [](const Sample& s) { return s.policy->role != "policy"; });
    if (metric_->better == Better::neither) return;
    if (group.workload == "all" || options_.differences_within_workloads) add_differences(samples);
    add_ranks(group, study_.budgets()[budget], std::move(samples));
  }

  Fields row_of(std::initializer_list<Value> more) const {
    Fields row = key_;
    row.insert(row.end(), more);
    return row;
  }

  std::pair<Value, Value> interval(std::vector<double> samples) const {
    if (samples.empty()) return {};
    const Interval found = percentile_interval(samples, options_.confidence);
    return {found.low, found.high};
  }

  void add_mean(const Sample& sample) {
    const auto [low, high] = interval(sample.means);
    const auto [shortest, longest] = prompts_of(sample.traces, study_.traces());
    made_.means.rows.push_back(
        row_of({sample.policy->label, sample.policy->params, sample.policy->role, members(sample.traces),
                mean_over(sample.traces, sample.values), low, high, shortest, longest}));
  }

  void add_differences(const std::vector<Sample>& samples) {
    const bool all = samples.size() <= kMostPaired;
    const std::size_t best = all ? 0 : best_of(samples);
    only_with_best_ = only_with_best_ || !all;
    for (std::size_t a = 0; a < samples.size(); ++a)
      for (std::size_t b = a + 1; b < samples.size(); ++b)
        if (all || a == best || b == best) add_difference(samples[a], samples[b]);
  }

  std::size_t best_of(const std::vector<Sample>& samples) const {
    std::vector<double> means;
    for (const Sample& sample : samples) means.push_back(mean_over(sample.traces, sample.values));
    const auto better = [&](double a, double b) { return metric_->prefers(a, b); };
    return static_cast<std::size_t>(std::ranges::min_element(means, better) - means.begin());
  }

  void add_difference(const Sample& a, const Sample& b) {
    const TraceSet common = both(a.traces, b.traces);
    if (members(common) == 0) return;
    std::vector<double> differences(common.size(), 0.0), of_runs(a.runs.size(), 0.0);
    for (std::size_t run = 0; run < of_runs.size(); ++run) of_runs[run] = a.runs[run] - b.runs[run];
    std::uint64_t better = 0, worse = 0;
    for (std::size_t i = 0; i < common.size(); ++i) {
      if (!common[i]) continue;
      differences[i] = a.values[i] - b.values[i];
      better += metric_->prefers(a.values[i], b.values[i]) ? 1 : 0;
      worse += metric_->prefers(b.values[i], a.values[i]) ? 1 : 0;
    }
    const bool resampled = resamples_.has_intervals(common);
    const auto [low, high] = interval(resampled ? resamples_.means(common, of_runs) : std::vector<double>{});
    made_.differences.rows.push_back(
        row_of({a.policy->label, a.policy->params, b.policy->label, b.policy->params, members(common),
                mean_over(common, differences), low, high, better, members(common) - better - worse, worse}));
  }

  /// Only policies with a value wherever any has one: fewer traces would be another contest.
  void add_ranks(const Group& group, const std::string& budget, std::vector<Sample> samples) {
    TraceSet contested(group.traces.size(), false);
    for (const Sample& sample : samples)
      for (std::size_t i = 0; i < contested.size(); ++i) contested[i] = contested[i] || sample.traces[i];
    std::erase_if(samples, [&](const Sample& sample) {
      if (sample.traces == contested) return false;
      unranked_[budget][sample.policy->label].insert(metric_->key);
      return true;
    });
    if (samples.size() < 2) return;

    std::vector<double> means;
    for (const Sample& sample : samples) means.push_back(mean_over(contested, sample.values));
    const std::vector<double> rank = ranks_by(*metric_, means);
    const std::vector<std::vector<double>> per_trace = trace_ranks(contested, samples);
    const Value agreement = value_of(concordance(per_trace));
    Resampled resampled = resampled_ranks(samples);
    for (std::size_t p = 0; p < samples.size(); ++p) {
      const auto [low, high] = interval(resampled.ranks[p]);
      double sum = 0;
      for (const std::vector<double>& ranks : per_trace) sum += ranks[p];
      made_.ranks.rows.push_back(
          row_of({samples[p].policy->label, samples[p].policy->params, members(contested), rank[p], low, high,
                  sum / static_cast<double>(per_trace.size()), resampled.best_share[p], agreement}));
    }
  }

  std::vector<std::vector<double>> trace_ranks(const TraceSet& traces,
                                               const std::vector<Sample>& samples) const {
    std::vector<std::vector<double>> out;
    std::vector<double> values(samples.size());
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (!traces[i]) continue;
      for (std::size_t p = 0; p < samples.size(); ++p) values[p] = samples[p].values[i];
      out.push_back(ranks_by(*metric_, values));
    }
    return out;
  }

  struct Resampled {
    std::vector<std::vector<double>> ranks;  ///< [policy][resample]; empty: no interval
    std::vector<Value> best_share;
  };

  Resampled resampled_ranks(const std::vector<Sample>& samples) const {
    Resampled out{std::vector<std::vector<double>>(samples.size()), std::vector<Value>(samples.size())};
    if (samples.front().means.empty()) return out;
    const std::size_t n = resamples_.size();
    std::vector<double> values(samples.size()), best(samples.size(), 0.0);
    for (std::vector<double>& ranks : out.ranks) ranks.reserve(n);
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t p = 0; p < samples.size(); ++p) values[p] = samples[p].means[r];
      const std::vector<double> ranks = ranks_by(*metric_, values);
      const double first = *std::ranges::min_element(ranks);
      const auto winners = static_cast<double>(std::ranges::count(ranks, first));
      for (std::size_t p = 0; p < samples.size(); ++p) {
        out.ranks[p].push_back(ranks[p]);
        if (ranks[p] == first) best[p] += 1 / winners;
      }
    }
    for (std::size_t p = 0; p < samples.size(); ++p) out.best_share[p] = best[p] / static_cast<double>(n);
    return out;
  }

  const TraceValues& study_;
  const std::string& cut_;
  const StatisticsOptions& options_;
  Statistics made_;
  Resamples resamples_;
  const Metric* metric_ = nullptr;  ///< of the rows being made
  Fields key_;                      ///< their first fields
  Unranked unranked_;
  bool only_with_best_ = false;
};

}  // namespace

Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options) {
  std::vector<const Metric*> chosen;
  for (const std::string& key : options.metrics) chosen.push_back(&metric(key));
  if (chosen.empty())
    for (const Metric& each : metrics()) chosen.push_back(&each);
  return statistics_of(results, traces, options, chosen);
}

Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options, const std::vector<const Metric*>& chosen) {
  check(options);
  Statistics out = empty_statistics();
  const std::vector<std::string> cuts = cuts_of(results);
  std::map<std::string, std::vector<std::string>> notes;
  for (const std::string& cut : cuts) {
    const TraceValues study(results, cut, traces, chosen);
    Statistics made = CutStatistics(study, options, cut).make();
    append(out.means, std::move(made.means));
    append(out.differences, std::move(made.differences));
    append(out.ranks, std::move(made.ranks));
    notes[cut] = std::move(made.notes);
  }
  out.notes = told_once(notes, cuts);
  return out;
}

namespace {

/// What every row is about, then `columns`.
std::vector<ColumnInfo> with_key(const std::vector<ColumnInfo>& columns) {
  std::vector<ColumnInfo> out{{"metric", "", "column of the results this is about"},
                              {"cut", "", "where the prompt ends for policies"},
                              {"workload", "", "kind of prompt; all: every trace"},
                              {"budget", "", "budget, as given"},
                              {"policy", "", "short name; with parameters where those differ"},
                              {"params", "", "composition with every effective parameter"}};
  out.insert(out.end(), columns.begin(), columns.end());
  return out;
}

}  // namespace

Statistics empty_statistics() {
  Statistics out;
  const std::string interval_low = "low end of the bootstrap interval; null: too few traces";
  const std::string interval_high = "its high end";
  out.means.columns = with_key(
      {{"role", "", "policy, oracle or own_budget, as in the results"},
       {"traces", "traces", "that have a value, and are averaged"},
       {"mean", "of the metric",
        "over traces; a trace's value is the mean over its seeds, which its interval draws anew, too"},
       {"low", "of the metric", interval_low},
       {"high", "of the metric", interval_high},
       {"prompt_min", "tokens", "shortest prompt among these traces"},
       {"prompt_max", "tokens", "longest prompt among these traces"}});
  out.differences.columns =
      with_key({{"other", "", "policy it is compared with"},
                {"other_params", "", "its composition"},
                {"traces", "traces", "where both have a value"},
                {"difference", "of the metric", "mean over traces of policy's value - other's"},
                {"low", "of the metric", interval_low},
                {"high", "of the metric", interval_high},
                {"better", "traces", "where policy's value is the better one"},
                {"equal", "traces", "where both are the same"},
                {"worse", "traces", "where other's value is the better one"}});
  out.ranks.columns = with_key(
      {{"traces", "traces", "where any ranked policy has a value; each has one in all of them"},
       {"rank", "", "of the mean, 1 is best; equal means share the mean of their places"},
       {"rank_low", "", "low end of the bootstrap interval of rank; null: too few traces"},
       {"rank_high", "", interval_high},
       {"mean_rank", "", "mean over traces of the rank in the trace"},
       {"best_share", "share",
        "of resamples in which the policy is best (not the probability that it is); ties share one"},
       {"concordance", "",
        "Kendall's W of the traces' rankings, 1 when all agree: 12 sum (S_i - mean S)^2 / (m^2 (n^3 - n) - m "
        "sum (t^3 - t)), S_i the sum of policy i's ranks over m traces, n policies, t the sizes of groups of "
        "ties; without policies that have no value in some trace"}});
  return out;
}

}  // namespace kvsim::analysis
