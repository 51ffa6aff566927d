#include "analysis/agreement/judged_policies.hpp"

#include <cmath>

#include "analysis/statistics/rank_agreement.hpp"
#include "analysis/statistics/trace_values.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::string> workloads_of(const LoopsAtCut& loops) {
  std::vector<std::string> out;
  for (const LoopsAtCut::Item& item : loops.items) out.push_back(item.workload);
  return out;
}

int sign_of(double difference) {
  return (difference > 0) - (difference < 0);
}

}  // namespace

JudgedPolicies::JudgedPolicies(const LoopsAtCut& loops, std::uint64_t resamples, std::uint64_t seed,
                               double confidence)
    : loops_(loops), confidence_(confidence), resamples_(workloads_of(loops), resamples, seed) {}

TraceSet JudgedPolicies::items_of(const std::string& workload, std::optional<std::size_t> half) const {
  TraceSet out(loops_.items.size(), false);
  std::size_t place = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (loops_.items[i].workload == workload) out[i] = !half || place++ % 2 == *half;
  return out;
}

std::vector<std::size_t> JudgedPolicies::ran_on_all(const std::string& workload, std::size_t budget) const {
  std::vector<std::size_t> out;
  for (std::size_t policy = 0; policy < loops_.policies.size(); ++policy) {
    const std::size_t begin = loops_.cell(budget, policy) * loops_.items.size();
    bool all = true;
    for (std::size_t i = 0; i < loops_.items.size(); ++i)
      all = all && (loops_.items[i].workload != workload || loops_.ran[begin + i]);
    if (all) out.push_back(policy);
  }
  return out;
}

Shared JudgedPolicies::shared(std::size_t open, std::size_t closed, std::size_t budget,
                              const std::vector<std::size_t>& policies, const TraceSet& set) const {
  const auto defined = [&](std::size_t policy, std::size_t item) {
    return !std::isnan(loops_.of_open(open, budget, policy)[item]) &&
           !std::isnan(loops_.of_closed(closed, budget, policy)[item]);
  };
  Shared out{{}, set};
  for (const std::size_t policy : policies) {
    bool some = false;
    for (std::size_t i = 0; i < set.size(); ++i) some = some || (set[i] && defined(policy, i));
    if (some) out.policies.push_back(policy);
  }
  for (std::size_t i = 0; i < set.size(); ++i)
    for (const std::size_t policy : out.policies) out.items[i] = out.items[i] && defined(policy, i);
  return out;
}

template <class Values>
const Judged& JudgedPolicies::judged(Memo& memo, std::size_t measure, std::size_t budget,
                                     const Shared& shared, double sign, const Values& values) {
  const auto [place, fresh] = memo.try_emplace({measure, budget, shared.policies, shared.items});
  Judged& out = place->second;
  if (!fresh) return out;
  const std::size_t n = shared.policies.size();
  const bool intervals = resamples_.has_intervals(shared.items);
  if (intervals) out.resampled.resize(resamples_.size() * n);
  for (std::size_t p = 0; p < n; ++p) {
    const std::span<const double> of = values(shared.policies[p]);
    out.means.push_back(sign * mean_over(shared.items, of));
    if (!intervals) continue;
    const std::vector<double> means = resamples_.means(shared.items, of);
    for (std::size_t r = 0; r < means.size(); ++r) out.resampled[r * n + p] = sign * means[r];
  }
  return out;
}

const Judged& JudgedPolicies::by_open(std::size_t measure, std::size_t budget, const Shared& shared) {
  const double sign = loops_.open[measure]->better == Better::lower ? -1 : 1;
  return judged(open_, measure, budget, shared, sign,
                [&](std::size_t policy) { return loops_.of_open(measure, budget, policy); });
}

const Judged& JudgedPolicies::by_closed(std::size_t measure, std::size_t budget, const Shared& shared) {
  const double sign = loops_.closed[measure]->better == Better::lower ? -1 : 1;
  return judged(closed_, measure, budget, shared, sign,
                [&](std::size_t policy) { return loops_.of_closed(measure, budget, policy); });
}

Estimated JudgedPolicies::estimate(std::optional<double> value, std::vector<double> samples) const {
  Estimated out{value, {}, {}};
  const double needed = confidence_ * static_cast<double>(resamples_.size());
  if (!value || samples.empty() || static_cast<double>(samples.size()) < needed) return out;
  const Interval interval = percentile_interval(samples, confidence_);
  out.low = interval.low;
  out.high = interval.high;
  return out;
}

Estimated JudgedPolicies::tau(const Judged& a, const Judged& b) const {
  std::vector<double> samples;
  if (!a.resampled.empty())
    for (std::size_t r = 0; r < resamples_.size(); ++r)
      if (const auto value = kendall_tau(a.resample(r), b.resample(r))) samples.push_back(*value);
  return estimate(kendall_tau(a.means, b.means), std::move(samples));
}

std::vector<std::pair<std::size_t, std::size_t>> JudgedPolicies::distinguishable(const Judged& judged) const {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  if (judged.resampled.empty()) return out;
  std::vector<double> differences(resamples_.size());
  for (std::size_t i = 0; i < judged.means.size(); ++i)
    for (std::size_t j = i + 1; j < judged.means.size(); ++j) {
      for (std::size_t r = 0; r < differences.size(); ++r)
        differences[r] = judged.resample(r)[i] - judged.resample(r)[j];
      const Interval interval = percentile_interval(differences, confidence_);
      if (interval.low > 0 || interval.high < 0) out.emplace_back(i, j);
    }
  return out;
}

Estimated JudgedPolicies::same_signs(const Judged& a, const Judged& b,
                                     const std::vector<std::pair<std::size_t, std::size_t>>& pairs) const {
  if (pairs.empty()) return {};
  const auto share = [&](std::span<const double> of_a, std::span<const double> of_b) {
    double same = 0;
    for (const auto& [i, j] : pairs)
      same += (1 + sign_of(of_a[i] - of_a[j]) * sign_of(of_b[i] - of_b[j])) / 2.0;
    return same / static_cast<double>(pairs.size());
  };
  std::vector<double> samples;
  for (std::size_t r = 0; r < resamples_.size(); ++r) samples.push_back(share(a.resample(r), b.resample(r)));
  return estimate(share(a.means, b.means), std::move(samples));
}

}  // namespace kvsim::analysis
