#include "analysis/figures/quality_curves.hpp"

#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr double kSqueezed = 3;          ///< times the axis of the gaps
constexpr std::size_t kFewPolicies = 4;  ///< of fewer there is no better half
constexpr std::size_t kMostBeyond = 6;   ///< names in a remark

bool is(const Metric& metric, std::string_view key) {
  return metric.key == key;
}

/// Largest gap of each policy, those with the smallest mean gap first.
std::vector<std::pair<std::string, double>> largest_gaps(
    const std::map<std::string, std::vector<Gap>>& gaps) {
  std::vector<std::tuple<double, std::string, double>> order;
  for (const auto& [policy, all] : gaps) {
    RunningMean mean;
    double most = 0;
    for (const Gap& gap : all) {
      mean.add(gap.value);
      most = std::max(most, gap.value);
    }
    order.emplace_back(*mean.value(), policy, most);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [mean, policy, most] : order) out.emplace_back(policy, most);
  return out;
}

}  // namespace

QualityCurves::QualityCurves(const ResultsView& view, const FigureTables& tables, const FigureChoice& choice,
                             const Metric& metric)
    : view_(view),
      metric_(metric),
      named_(view, metric, choice),
      known_colours_(view, leading_metric(tables), choice),
      means_{.x = view.budget_axis(), .y = metric_axis(metric)},
      gaps_{.x = view.budget_axis(),
            .y = {.label = "gap to the best policy", .percent = metric.percent, .line = 0.0}} {
  read_means(tables, choice);
  if (curves_.empty()) return;
  all_gaps_ = gaps_to_best(tables, metric, choice);
  add_policies(choice);
  Series line = bound(choice);
  if (line.points.empty()) line = oracle();
  if (!line.points.empty()) means_.series.push_back(std::move(line));
  add_gaps();
  limit_gaps();
}

void QualityCurves::read_means(const FigureTables& tables, const FigureChoice& choice) {
  const Records& means = *tables.find("means");
  const TableColumn budget(means, "budget"), policy(means, "policy"), role(means, "role"),
      traces(means, "traces"), mean(means, "mean"), low(means, "low"), high(means, "high");
  for (const std::size_t row :
       rows_where(means, {{"metric", metric_.key}, {"workload", one_workload(choice)}})) {
    const auto value = mean.number(row);
    if (!value) continue;
    const std::string& label = policy.text(row);
    Series& series = curves_[label];
    series.label = label;
    roles_[label] = role.text(row);
    traces_ = std::max(traces_, static_cast<std::uint64_t>(traces.number(row).value_or(0)));
    series.points.push_back({view_.place(budget.text(row)), *value, low.number(row), high.number(row)});
  }
  for (auto& [label, series] : curves_)
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
}

/// What nothing of the size can beat, however it splits the budget over lanes: the best bound of any policy,
/// since some hold more than others.
Series QualityCurves::bound(const FigureChoice& choice) const {
  Series out{.label = is(metric_, "r") ? "best set, any split" : "bound, any split", .weight = Weight::bound};
  if (!is(metric_, "r") && !is(metric_, "attention_loss")) return out;
  const TableColumn bounds = view_.metric(std::string(metric_.key) + "_bound");
  const std::vector<std::size_t> all = view_.rows("all", choice);
  for (const std::string& budget : view_.budgets()) {
    const std::vector<std::optional<double>> means = view_.means(view_.rows_at(budget, all), bounds);
    std::optional<double> best;
    for (std::size_t i = 0; i < means.size(); ++i)
      if (means[i] && view_.policies()[i].role == "policy" && (!best || metric_.prefers(*means[i], *best)))
        best = means[i];
    if (best) out.points.push_back({view_.place(budget), *best, {}, {}});
  }
  return out;
}

/// The one that comes furthest, by its mean over budgets.
Series QualityCurves::oracle() const {
  const Series* best = nullptr;
  double best_mean = 0;
  for (const auto& [label, series] : curves_) {
    if (roles_.at(label) != "oracle" || !metric_.oracles_aim_at_it) continue;
    RunningMean mean;
    for (const Point& point : series.points) mean.add(point.y);
    if (best != nullptr && !metric_.prefers(*mean.value(), best_mean)) continue;
    best = &series;
    best_mean = *mean.value();
  }
  if (best == nullptr) return {};
  Series out = *best;
  out.group = "oracle " + out.label + ", own split";
  out.weight = Weight::bound;
  for (Point& point : out.points) point.low = point.high = std::nullopt;
  return out;
}

void QualityCurves::add_policies(const FigureChoice& choice) {
  for (const std::string& label : named_.labels()) {
    const auto found = curves_.find(label);
    if (found == curves_.end() || !is_compared(label, roles_.at(label))) continue;
    Series series = placed(found->second, choice);
    series.colour = known_colours_.place(label);  // the same in every figure
    for (const Point& point : series.points) interval_ = interval_ || (point.low && point.high);
    levels_ = levels_ || view_.policy(label).stores_all;
    means_.series.push_back(std::move(series));
  }
  for (const auto& [label, series] : curves_) {
    if (!is_compared(label, roles_.at(label)) || named_.has(label)) continue;
    means_.series.push_back(placed(series, choice));
    means_.series.back().group = "other policies";
    means_.series.back().weight = Weight::faint;
  }
  if (const auto full = curves_.find("full"); full != curves_.end()) {
    means_.series.push_back(placed(full->second, choice));
    means_.series.back().weight = Weight::bound;
    for (Point& point : means_.series.back().points) point.low = point.high = std::nullopt;
  }
}

/// Where a policy stands that decides by itself how much it keeps: one that stores everything as a level
/// line, to be met by the curves at some budget; another as a point at what it keeps.
Series QualityCurves::placed(Series series, const FigureChoice& choice) const {
  if (roles_.at(series.label) == "policy") return series;
  const Point value = series.points.front();  // the same at every budget
  const auto at = own_place(series.label, choice);
  const std::vector<ResultsView::Policy>& all = view_.policies();
  const bool everything = std::any_of(all.begin(), all.end(), [&](const ResultsView::Policy& policy) {
    return policy.label == series.label && policy.stores_all;
  });
  if (at && !everything) {
    series.group = series.label + " (own budget)";
    series.points = {{*at, value.y, value.low, value.high}};
  } else {
    series.points = view_.level(value);
  }
  return series;
}

/// Mean over traces, from the results.
std::optional<double> QualityCurves::own_place(const std::string& label, const FigureChoice& choice) const {
  RunningMean mean;
  for (const std::size_t row : view_.rows("all", choice)) {
    if (view_.policies()[view_.policy_of(row)].label != label) continue;
    if (const auto at = view_.own_place(row)) mean.add(*at);
  }
  return mean.value();
}

void QualityCurves::add_gaps() {
  for (Series series : means_.series) {
    const auto found = all_gaps_.find(series.label);
    if (found == all_gaps_.end()) continue;
    series.points.clear();
    for (const Gap& gap : found->second)
      series.points.push_back({view_.place(gap.budget), gap.value, gap.low, gap.high});
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
    gaps_.series.push_back(std::move(series));
  }
}

void QualityCurves::limit_gaps() {
  const auto order = largest_gaps(all_gaps_);
  if (order.size() < kFewPolicies) return;
  double limit = 0;
  for (std::size_t i = 0; i < (order.size() + 1) / 2; ++i) limit = std::max(limit, order[i].second);
  if (limit == 0) return;
  gaps_.y.high = limit;
  for (const auto& [policy, most] : order)
    if (most > limit) beyond_.insert(beyond_.begin(), policy);  // the worst first
}

bool QualityCurves::squeezed() const {
  if (!gaps_.y.high) return false;
  double most = 0;
  for (const auto& [policy, gaps] : all_gaps_)
    for (const Gap& gap : gaps) most = std::max(most, gap.value);
  return most > kSqueezed * *gaps_.y.high;
}

std::string QualityCurves::beyond() const {
  if (beyond_.empty()) return "";
  std::vector<std::string> named = beyond_;
  if (named.size() > kMostBeyond) named.resize(kMostBeyond - 1);
  return joined(named) + (named.size() < beyond_.size()
                              ? " and " + std::to_string(beyond_.size() - named.size()) + " more"
                              : "");
}

std::string QualityCurves::title(const FigureChoice& choice) const {
  return capitalised(metric_.label) + " against budget, " + traces_text(traces_, choice.workload);
}

std::string QualityCurves::reading() const {
  std::string out = std::string(metric_.better == Better::lower ? "Lower" : "Higher") +
                    " is better. A curve is a policy" +
                    (interval_ ? ", its band the interval of its mean over traces" : "");
  std::vector<std::string> lines;
  for (const Series& series : means_.series) {
    if (series.weight != Weight::bound) continue;
    if (series.label == "full")
      lines.emplace_back("the full cache");
    else if (series.label == "best set, any split")
      lines.emplace_back("the best set of the size at any split of the budget, which no policy can beat");
    else if (series.label == "bound, any split")
      lines.emplace_back(
          "the least that anything of the size can lose at any split of the budget, which no policy can "
          "beat");
    else
      lines.emplace_back(
          "an oracle, which knows the future, at its own split of the budget: another split may do better");
  }
  if (lines.size() == 1) out += "; the dashed line is " + lines[0];
  if (lines.size() > 1) out += "; dashed lines are " + lines[0] + " and " + lines[1];
  if (levels_) out += "; a level line is a policy that stores every token, whatever the budget";
  return out + '.';
}

Records QualityCurves::data() const {
  Figure figure;
  figure.panels.push_back({"", means_});
  Records out = figure_data(figure, {.series = "policy", .x = "budget", .y = metric_.key});
  out.columns.push_back({"gap", metric_.unit, "how much worse than the best policy of the budget"});
  out.columns.push_back({"gap_low", metric_.unit, "lower end of its interval"});
  out.columns.push_back({"gap_high", metric_.unit, "upper end of its interval"});
  const std::size_t policy = out.column("policy"), budget = out.column("budget");
  for (std::vector<Value>& row : out.rows) {
    const Point* shown = nullptr;
    for (const Series& series : gaps_.series)
      if (series.label == text(row[policy]))
        for (const Point& point : series.points)
          if (point.x == number(row[budget])) shown = &point;
    row.push_back(shown == nullptr ? Value() : Value(shown->y));
    row.push_back(shown == nullptr || !shown->low ? Value() : Value(*shown->low));
    row.push_back(shown == nullptr || !shown->high ? Value() : Value(*shown->high));
  }
  return out;
}

}  // namespace kvsim::analysis
