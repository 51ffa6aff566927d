// With how few bytes each policy answers like the full cache.
#include <algorithm>
#include <map>

#include "analysis/figures/figure_rows.hpp"
#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/statistics.hpp"

namespace kvsim::analysis {
namespace {

/// Share of the prompts that may be lost.
constexpr double kMargin = 0.01;

/// What a policy holds and loses at one budget, by prompt.
struct HeldAndLost {
  std::vector<double> share{};  ///< of the full cache's bytes
  std::vector<double>
      lost{};  ///< 1: the full cache is right and the policy is wrong; -1: the other way round
};

/// The mean share at the least budget from which on no more than the margin is lost at any; 1, the full
/// cache, where there is none. `shares`, `lost`: means by budget, smallest first.
double least_share(const std::vector<double>& shares, const std::vector<double>& lost) {
  double least = 1;
  for (std::size_t budget = shares.size(); budget-- > 0 && lost[budget] <= kMargin + 1e-9;)
    least = shares[budget];
  return least;
}

/// Its interval over prompts, drawn within workloads: of each resample the means, and of these the least
/// share.
Point least_point(const std::vector<HeldAndLost>& budgets, const std::vector<std::string>& workloads) {
  const std::size_t prompts = workloads.size();
  const StatisticsOptions defaults;
  const TraceSet all(prompts, true);
  Resamples resamples(workloads, defaults.resamples, defaults.seed);
  const auto mean = [&](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(prompts);
  };
  std::vector<double> shares, lost;
  std::vector<std::vector<double>> drawn_shares, drawn_lost;
  for (const HeldAndLost& budget : budgets) {
    shares.push_back(mean(budget.share));
    lost.push_back(mean(budget.lost));
    drawn_shares.push_back(resamples.means(all, budget.share));
    drawn_lost.push_back(resamples.means(all, budget.lost));
  }
  Point out{0, least_share(shares, lost), {}, {}};
  if (!resamples.has_intervals(all)) return out;
  std::vector<double> least;
  for (std::size_t r = 0; r < resamples.size(); ++r) {
    for (std::size_t budget = 0; budget < budgets.size(); ++budget) {
      shares[budget] = drawn_shares[budget][r];
      lost[budget] = drawn_lost[budget][r];
    }
    least.push_back(least_share(shares, lost));
  }
  const Interval interval = percentile_interval(least, defaults.confidence);
  out.low = interval.low;
  out.high = interval.high;
  return out;
}

/// Answers of the prompts that the full cache answered or not, workload by workload.
struct Answers {
  std::vector<std::string> workloads{};  ///< of each prompt
  /// By policy, then by budget, smallest first. Budgets at which some prompt has no answer are left out.
  std::map<std::string, std::vector<HeldAndLost>> policies{};
};

Answers answers_of(const AnswersAtCut& answers, const FigureChoice& choice) {
  const Records& rows = answers.all;
  const TableColumn budget(rows, "budget"), mode(rows, "mode"), item(rows, "item"), turn(rows, "turn"),
      seed(rows, "seed"), workload(rows, "workload"), params(rows, "params"), right(rows, "right"),
      right_full(rows, "right_full"), held(rows, "held_bytes");
  using Prompt = std::vector<std::string>;
  std::map<Prompt, double> full;
  std::map<std::string, std::map<double, std::map<Prompt, std::size_t>>> found;
  for (std::size_t row = 0; row < rows.rows.size(); ++row) {
    if (mode.text(row) != "greedy" || !right.number(row) || !held.number(row)) continue;
    if (!choice.workload.empty() && workload.text(row) != choice.workload) continue;
    const Prompt prompt{workload.text(row), item.text(row), std::to_string(turn.count(row)),
                        std::to_string(seed.count(row))};
    const std::string& label = answers.labels.at(params.text(row));
    if (label == "full")
      full[prompt] = *held.number(row);
    else
      found[label][answers.view.place(budget.text(row))][prompt] = row;
  }
  Answers out;
  for (const auto& [prompt, bytes] : full) out.workloads.push_back(prompt.front());
  for (const auto& [label, budgets] : found)
    for (const auto& [place, prompts] : budgets) {
      HeldAndLost at;
      for (const auto& [prompt, bytes] : full) {
        const auto row = prompts.find(prompt);
        if (row == prompts.end()) break;
        at.share.push_back(*held.number(row->second) / bytes);
        at.lost.push_back(right_full.number(row->second).value_or(0) - *right.number(row->second));
      }
      if (!full.empty() && at.share.size() == full.size()) out.policies[label].push_back(std::move(at));
    }
  return out;
}

std::vector<Figure> least_bytes(const FigureTables& tables, FigureChoice& choice) {
  choice.trace.clear();  // shares are of prompts
  Figure figure{
      .title = "Bytes until it breaks: the least share of the full cache from which on answers hold",
      .reading =
          "Left is better. The least share of the full cache's bytes at which, as at every larger budget "
          "asked, at most one prompt in a hundred is lost; a bar is its interval over prompts. 100 % is the "
          "full cache itself: no budget asked is enough."};
  for (const AnswersAtCut& answers : answers_at_cuts(tables, choice)) {
    std::vector<std::pair<std::string, Point>> least;
    const Answers prompts = answers_of(answers, choice);
    for (const auto& [label, budgets] : prompts.policies)
      if (choice.wants(label) && answers.view.policy(label).compared())
        least.emplace_back(label, least_point(budgets, prompts.workloads));
    if (least.empty()) continue;
    std::ranges::stable_sort(least, [](const auto& a, const auto& b) { return a.second.y < b.second.y; });
    Chart chart{.y = {.label = "least share of the full cache's bytes", .low = 0, .high = 1, .percent = true},
                .joined = false,
                .flipped = true};
    Series series{.label = "", .colour = 0};
    for (auto& [label, point] : least) {
      point.x = static_cast<double>(chart.x.categories.size());
      chart.x.categories.push_back(label);
      series.points.push_back(point);
    }
    chart.series.push_back(std::move(series));
    figure.panels.push_back({short_meaning(answers.cut), std::move(chart), answers.cut});
  }
  if (figure.panels.empty()) return {};
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> least_figures() {
  return {
      {.name = "least-bytes",
       .summary = "least share of the full cache's bytes at which answers hold, a bar per policy",
       .needs =
           "greedy answers at several budgets with policy full among them: rows of kvsim evaluate, or the folder of a study "
           "with the closed loop",
       .draw = least_bytes,
       .table = kAnswersTable,
       .data = {.panel = "cut", .series = "", .x = "policy", .y = "least_share"}}};
}

}  // namespace kvsim::analysis
