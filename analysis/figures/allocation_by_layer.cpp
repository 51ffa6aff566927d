#include <algorithm>
#include <cmath>
#include <cstdio>

#include "analysis/figures/layer_figures.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 6;

/// One policy: shares by layer, of each trace it ran on.
struct Split {
  std::string label{};
  Judgements shares{};
};

/// Traces of `layers` layers; others are of another model.
Split split_of(const Records& policy, std::string label, std::size_t layers) {
  Split split{std::move(label), {}};
  const std::size_t share = policy.column("share");
  for (const Records& trace : split_by(policy, "trace")) {
    std::vector<double> shares;
    for (const std::vector<Value>& row : trace.rows)
      if (const auto value = number(row[share])) shares.push_back(*value);
    if (shares.size() == layers) split.shares.push_back(std::move(shares));
  }
  return split;
}

bool even(const Split& split) {
  const auto same = [](const std::vector<double>& layers) {
    return std::all_of(layers.begin(), layers.end(),
                       [&](double share) { return std::abs(share - layers[0]) < 1e-9; });
  };
  return std::all_of(split.shares.begin(), split.shares.end(), same);
}

std::string title_of(const Split& split) {
  const std::optional<double> w = concordance(split.shares);
  if (!w) return split.label;
  char text[32];
  std::snprintf(text, sizeof text, " (W = %.2f)", *w);
  return split.label + text;
}

std::vector<Point> points_of(const std::vector<double>& layers) {
  std::vector<Point> points;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    points.push_back({static_cast<double>(layer), layers[layer], {}, {}});
  return points;
}

Panel panel_of(const Split& split) {
  const std::size_t layers = split.shares[0].size();
  Chart chart;
  chart.x = layer_axis(layers);
  chart.y.label = "share of all tokens";
  chart.y.percent = true;
  chart.y.low = 0;
  const double last = static_cast<double>(layers) - 1, even_share = 1 / static_cast<double>(layers);
  chart.series.push_back(
      {"even split", Weight::bound, {{0, even_share, {}, {}}, {last, even_share, {}, {}}}});
  Gathered by_layer;
  for (const std::vector<double>& trace : split.shares) {
    if (split.shares.size() > 1) chart.series.push_back({"one trace", Weight::faint, points_of(trace)});
    for (std::size_t layer = 0; layer < layers; ++layer)
      by_layer[static_cast<double>(layer)].push_back(trace[layer]);
  }
  std::vector<double> mean;
  for (const auto& [layer, shares] : by_layer) mean.push_back(mean_of(shares));
  chart.series.push_back(
      {split.shares.size() > 1 ? "mean over traces" : "the trace", Weight::plain, points_of(mean)});
  return {title_of(split), std::move(chart)};
}

/// One scale for all: panels are compared.
void share_scale(std::vector<Panel>& panels) {
  double most = 0;
  for (const Panel& panel : panels)
    for (const Series& series : std::get<Chart>(panel.content).series)
      for (const Point& point : series.points) most = std::max(most, point.y);
  for (Panel& panel : panels) std::get<Chart>(panel.content).y.high = most;
}

void add_data(Records& data, const Split& split) {
  for (std::size_t layer = 0; layer < split.shares[0].size(); ++layer) {
    Gathered one;
    for (const std::vector<double>& trace : split.shares) one[0].push_back(trace[layer]);
    const Point point = spread_over_traces(one)[0];
    data.rows.push_back({split.label, std::uint64_t{layer}, std::uint64_t{split.shares.size()}, point.y,
                         value_of(point.low), value_of(point.high)});
  }
}

}  // namespace

std::optional<Figure> allocation_by_layer(const Records& allocation) {
  if (allocation.rows.empty()) return {};
  const std::size_t layers = split_by_number(split_by(allocation, "trace")[0], "layer").size();
  Figure figure;
  figure.data.columns = {{"policy", "", "policy"},
                         {"layer", "", "layer"},
                         {"traces", "traces", "on which the policy can run"},
                         {"share", "", "of the tokens of all layers, mean over traces"},
                         {"share_low", "", "least of any trace; undefined for one trace"},
                         {"share_high", "", "most of any trace; undefined for one trace"}};
  std::vector<std::string> evenly, left_out;
  std::map<std::string, std::string> labels = policy_labels(allocation);
  for (const Records& policy : split_by(allocation, "params")) {
    const std::string& label = labels[text(policy.rows[0][policy.column("params")])];
    const Split split = split_of(policy, label, layers);
    if (split.shares.empty()) continue;
    add_data(figure.data, split);
    if (even(split)) {
      evenly.push_back(label);
    } else if (figure.panels.size() == kMostPanels) {
      left_out.push_back(label);
    } else {
      figure.panels.push_back(panel_of(split));
    }
  }
  if (figure.panels.empty()) return {};
  share_scale(figure.panels);
  figure.name = "allocation-by-layer";
  figure.title = "How policies split a budget of " + text(allocation.rows[0][allocation.column("budget")]) +
                 " over layers";
  figure.reading =
      "Thin lines are traces: where they lie together, the policy splits alike whatever the prompt (W = 1: "
      "one order of layers on all of them).";
  std::vector<std::string> remarks;
  if (!evenly.empty()) remarks.push_back("Splits evenly: " + joined(evenly) + ".");
  if (!left_out.empty()) remarks.push_back("In the data only: " + joined(left_out) + ".");
  figure.remark = joined(remarks, " ");
  figure.command = analyze_command("allocation", allocation);
  return figure;
}

}  // namespace kvsim::analysis
