#include "analysis/choice/race.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// What each prompt says for the first setting and against the other: answers where one was judged, else KL.
std::vector<double> leads(const std::vector<Answered>& first, const std::vector<Answered>& other) {
  std::vector<double> answers, divergences;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].kept && other[i].kept)
      answers.push_back((*first[i].kept ? 1.0 : 0.0) - (*other[i].kept ? 1.0 : 0.0));
    divergences.push_back(other[i].kl - first[i].kl);
  }
  return answers.empty() ? divergences : answers;
}

bool surely_worse(const std::vector<Answered>& first, const std::vector<Answered>& other) {
  constexpr std::size_t kResamples = 2000;
  const std::vector<double> lead = leads(first, other);
  const TraceSet all(lead.size(), true);
  Resamples resamples(std::vector<std::string>(lead.size()), kResamples, 0);
  if (!resamples.has_intervals(all)) return false;
  std::vector<double> means = resamples.means(all, lead);
  return percentile_interval(means, 0.95).low > 0;
}

}  // namespace

Standing standing(const std::vector<Answered>& answers) {
  RunningMean kept, kl;
  for (const Answered& answer : answers) {
    if (answer.kept) kept.add(*answer.kept ? 1 : 0);
    kl.add(answer.kl);
  }
  return {kept.value(), kl.value().value_or(std::numeric_limits<double>::infinity())};
}

std::vector<std::size_t> best_first(const std::vector<std::vector<Answered>>& settings) {
  std::vector<std::tuple<double, double, std::size_t>> order;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Standing of = standing(settings[i]);
    order.emplace_back(-of.kept.value_or(0), of.kl, i);
  }
  std::ranges::sort(order);
  std::vector<std::size_t> out;
  for (const auto& each : order) out.push_back(std::get<2>(each));
  return out;
}

std::vector<std::size_t> survivors(const std::vector<std::vector<Answered>>& settings, std::size_t most) {
  std::vector<std::size_t> order = best_first(settings);
  if (order.empty()) return order;
  order.resize(std::min(order.size(), most));
  const std::vector<Answered>& first = settings[order.front()];
  order.erase(std::remove_if(order.begin() + 1, order.end(),
                             [&](std::size_t other) { return surely_worse(first, settings[other]); }),
              order.end());
  return order;
}

}  // namespace kvsim::analysis
