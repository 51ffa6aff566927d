// What a step reads, by where it is: the index and what the step before has read on the device, the rest
// where the cache lives.
#include <algorithm>
#include <cmath>

#include "analysis/figures/results_view.hpp"
#include "analysis/figures/step_means.hpp"
#include "analysis/figures/chart_parts.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 4;
constexpr double kMostBars = 100;

/// KiB by step, means over traces and seeds.
struct Traffic {
  StepMeans index{}, hits{}, misses{};
};

std::map<std::string, Traffic> traffic_of(const ResultsView& view, const std::vector<std::size_t>& rows) {
  const TableColumn read = view.metric("read_bytes"), index = view.metric("index_read_bytes"),
                    hit_rate = view.metric("hit_rate");
  std::map<std::string, Traffic> out;
  for (const std::size_t row : rows) {
    const auto bytes = read.number(row), of_index = index.number(row);
    const ResultsView::Policy& policy = view.policies()[view.policy_of(row)];
    if (!bytes || !of_index || !policy.compared()) continue;
    const double tokens = *bytes - *of_index;
    const double hits = tokens * hit_rate.number(row).value_or(0);  // the first step finds nothing
    const double step = *view.step.number(row);
    Traffic& traffic = out[policy.label];
    traffic.index[step].add(*of_index / 1024);
    traffic.hits[step].add(hits / 1024);
    traffic.misses[step].add((tokens - hits) / 1024);
  }
  return out;
}

/// Columns of as many steps, parts on each other from the axis up; each the mean of its steps.
Timeline columns_of(const Traffic& traffic, std::size_t steps) {
  Timeline out;
  out.x = {.label = "measured step", .whole = true};
  out.y = {.label = "KiB read", .low = 0.0};
  out.colours = {"index", "hits: read at the step before, too", "misses"};
  const std::vector<const StepMeans*> parts = {&traffic.index, &traffic.hits, &traffic.misses};
  for (auto at = traffic.index.begin(); at != traffic.index.end();) {
    const double first = at->first;
    std::vector<RunningMean> means(parts.size());
    double last = first;
    for (std::size_t n = 0; n < steps && at != traffic.index.end(); ++n, ++at) {
      last = at->first;
      for (std::size_t part = 0; part < parts.size(); ++part) means[part].add(*parts[part]->at(last).value());
    }
    double base = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const double size = *means[part].value();
      if (size > 0)
        out.bars.push_back({base + size / 2, first - 0.4, last + 0.4, static_cast<int>(part), size});
      base += size;
    }
    out.y.high = std::max(out.y.high.value_or(0), base);
  }
  return out;
}

Records data_of(const std::vector<std::pair<std::string, Traffic>>& shown) {
  Records out{{{"policy", "", "the policy"},
               {"step", "index", "measured step"},
               {"index_kib", "KiB", "read of the index"},
               {"hit_kib", "KiB", "read at the step before, too"},
               {"miss_kib", "KiB", "not read at the step before"}},
              {}};
  for (const auto& [label, traffic] : shown)
    for (const auto& [step, mean] : traffic.index)
      out.rows.push_back(
          {label, step, *mean.value(), *traffic.hits.at(step).value(), *traffic.misses.at(step).value()});
  return out;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("step", choice);
  if (all.empty()) return {};
  FigureChoice made = choice;
  made.metric.clear();
  made.budget = view.one_budget(all, choice);
  const StepRows steps(view, view.rows_with(view.rows_at(made.budget, all), view.metric("read_bytes")));
  std::map<std::string, Traffic> traffic = traffic_of(view, steps.rows());
  const std::size_t selections = traffic.size();
  std::vector<std::pair<std::string, Traffic>> shown;
  const NamedPolicies named(view, leading_metric(tables), choice);
  for (const std::string& label : named.labels())
    if (const auto found = traffic.find(label); found != traffic.end() && shown.size() < kMostPanels)
      shown.emplace_back(label, std::move(found->second));
  if (shown.empty()) return {};

  Figure figure;
  const auto count = static_cast<double>(shown.front().second.index.size());
  const auto together = static_cast<std::size_t>(std::ceil(count / kMostBars));
  double most = 0;
  for (const auto& [label, each] : shown) {
    Timeline timeline = columns_of(each, together);
    most = std::max(most, *timeline.y.high);
    figure.panels.push_back({label, std::move(timeline)});
  }
  for (Panel& panel : figure.panels) std::get<Timeline>(panel.content).y.high = most;
  figure.name = "traffic";
  figure.title = "What a step reads of what is stored, " + at_budget(made.budget) + ", " +
                 traces_text(steps.traces(), choice.workload);
  figure.reading =
      "A column is a step: what choosing reads of the index, then the tokens that are read. A device that "
      "keeps the index and the tokens of the last step reads the misses alone from where the cache lives.";
  if (together > 1) figure.remark = "A column is the mean of " + std::to_string(together) + " steps.";
  if (selections > shown.size())
    figure.remark += (figure.remark.empty() ? "" : " ") + std::string("Shown: ") +
                     std::to_string(shown.size()) + " of the " + std::to_string(selections) +
                     " policies that read a part; others by --policy.";
  figure.command = plot_command("traffic", tables, made);
  figure.columns = 2;
  figure.data = data_of(shown);
  return {std::move(figure)};
}

}  // namespace

FigureKind traffic_figure() {
  return {"traffic", "bytes that each step reads of index, hits and misses, a panel per policy",
          "results of scope step (kvsim replay --per step) in which a policy reads a part of what it stores, "
          "such as full+quest",
          build};
}

}  // namespace kvsim::analysis
