// Quality against budget: a curve per policy between the full cache and a bound, one figure per metric; and
// the leading metric at all cuts side by side.
#include <algorithm>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/figure_rows.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// What a neutral line is: its label, and how a reader is told.
struct Bound {
  const char *label, *said;
};
constexpr Bound kFull{"full", "the full cache"},
    kBestSet{"best set, any split",
             "the best set of the size at any split of the budget, which no policy can beat"},
    kLeastLoss{
        "bound, any split",
        "the least that anything of the size can lose at any split of the budget, which no policy can beat"},
    kOracle{"",
            "an oracle, which knows the future, at its own split of the budget: another split may do better"};

void without_intervals(Series& series) {
  for (Point& point : series.points) point.low = point.high = std::nullopt;
}

/// Curves of one metric at one cut: its means, and the gap of each to the best policy of its budget.
class QualityCurves {
 public:
  /// All that is given must outlive it.
  QualityCurves(const ResultsView& view, const FigureTables& tables, const FigureChoice& choice,
                const Metric& metric)
      : view_(view), metric_(metric), named_(view, metric, choice) {
    read_means(*tables.find("means"), choice);
    if (curves_.empty()) return;
    all_gaps_ = gaps_to_best(tables, metric, choice);
    add_policies(choice);
    add_bound(choice);
    add_gaps();
    limit_gaps();
  }

  bool empty() const { return means_.series.empty(); }
  /// Policies, grey ones, the full cache and a bound.
  const Chart& means() const { return means_; }
  /// How much worse the policies are than the best of each budget. The axis ends at the largest gap of the
  /// better half of them, by their mean gap over budgets.
  const Chart& gaps() const { return gaps_; }
  std::string remark() const { return named_.remark(); }

  /// Whether the largest gap is more than three times as large as the axis of the gaps: then means() squeezes
  /// the better half into a band.
  bool squeezed() const {
    constexpr double kSqueezed = 3;
    double most = 0;
    for (const auto& [policy, gaps] : all_gaps_)
      for (const Statistic& gap : gaps) most = std::max(most, gap.value);
    return gaps_.y.high && most > kSqueezed * *gaps_.y.high;
  }

  /// What the axis of the gaps leaves out; empty: nothing.
  std::string beyond() const {
    constexpr std::size_t kMostNames = 6;
    std::vector<std::string> named = beyond_;
    if (named.size() > kMostNames) named.resize(kMostNames - 1);
    const std::size_t more = beyond_.size() - named.size();
    return joined(named) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
  }

  std::string title(const FigureChoice& choice) const {
    return capitalised(metric_.label) + " against budget, " + traces_text(traces_, choice.workload);
  }

  std::string reading() const {
    std::string out = std::string(metric_.better == Better::lower ? "Lower" : "Higher") +
                      " is better. A curve is a policy" +
                      (interval_ ? ", its band or bars the intervals of its mean over traces" : "");
    if (!bounds_.empty())
      out += std::string("; ") + (bounds_.size() == 1 ? "the dashed line is " : "dashed lines are ");
    out += joined(bounds_, " and ");
    if (levels_) out += "; a level line is a policy that stores every token, whatever the budget";
    return out + '.';
  }

  /// The numbers of both charts.
  Records data() const {
    Figure figure;
    figure.panels.push_back({"", means_});
    Records out = figure_data(figure, {.series = "policy", .x = "budget", .y = metric_.key});
    out.columns.push_back({"gap", metric_.unit, "how much worse than the best policy of the budget"});
    out.columns.push_back({"gap_low", metric_.unit, "lower end of its interval"});
    out.columns.push_back({"gap_high", metric_.unit, "upper end of its interval"});
    const std::size_t policy = out.column("policy"), budget = out.column("budget");
    for (std::vector<Value>& row : out.rows) {
      Point shown;
      std::optional<double> gap;
      for (const Series& series : gaps_.series)
        for (const Point& point : series.points)
          if (series.label == text(row[policy]) && point.x == number(row[budget])) {
            shown = point;
            gap = point.y;
          }
      for (const auto& value : {gap, shown.low, shown.high}) row.push_back(value_of(value));
    }
    return out;
  }

 private:
  void read_means(const Records& means, const FigureChoice& choice) {
    const Where where = {{"metric", metric_.key}, {"workload", one_workload(choice)}};
    for (const Statistic& mean : statistics_where(means, where, "mean")) {
      Series& series = curves_[mean.policy];
      series.label = mean.policy;
      roles_[mean.policy] = mean.role;
      traces_ = std::max(traces_, mean.traces);
      series.points.push_back({view_.place(mean.budget), mean.value, mean.low, mean.high});
    }
    for (auto& [label, series] : curves_) sort_points(series);
  }

  void add_policies(const FigureChoice& choice) {
    for (const std::string& label : named_.labels) {
      const auto found = curves_.find(label);
      if (found == curves_.end() || !is_compared(label, roles_.at(label))) continue;
      Series series = placed(found->second, choice);
      series.policy = label;
      for (const Point& point : series.points) interval_ = interval_ || (point.low && point.high);
      levels_ = levels_ || view_.policy(label).stores_all;
      means_.series.push_back(std::move(series));
    }
    for (const auto& [label, series] : curves_) {
      if (!is_compared(label, roles_.at(label)) || place_in(named_.labels, label) >= 0) continue;
      means_.series.push_back(placed(series, choice));
      means_.series.back().group = "other policies";
      means_.series.back().weight = Weight::faint;
    }
    if (const auto full = curves_.find(kFull.label); full != curves_.end())
      add_line(placed(full->second, choice), kFull.said);
  }

  /// Where a policy stands that decides by itself how much it keeps: one that stores everything as a level
  /// line, to be met by the curves at some budget; another as a point at what it keeps.
  Series placed(Series series, const FigureChoice& choice) const {
    if (roles_.at(series.label) == "policy") return series;
    const Point value = series.points.front();  // the same at every budget
    bool everything = false;
    RunningMean kept;  // over traces, from the results
    for (const ResultsView::Policy& policy : view_.policies())
      everything = everything || (policy.label == series.label && policy.stores_all);
    for (const std::size_t row : view_.rows("all", choice))
      if (view_.policy_of(row).label == series.label)
        if (const auto at = view_.own_place(row)) kept.add(*at);
    if (kept.value() && !everything) {
      series.group = series.label + " (own budget)";
      series.points = {{*kept.value(), value.y, value.low, value.high}};
    } else {
      series.points = view_.level(value);
    }
    return series;
  }

  void add_line(Series line, const char* said) {
    line.weight = Weight::bound;
    without_intervals(line);
    means_.series.push_back(std::move(line));
    bounds_.emplace_back(said);
  }

  /// What nothing of the size can beat, however it splits the budget over lanes: the best bound of any
  /// policy, since some hold more than others. Without one, the oracle that comes furthest, by its mean over
  /// budgets.
  void add_bound(const FigureChoice& choice) {
    const std::string_view key = metric_.key;
    const Bound& bound = key == "r" ? kBestSet : kLeastLoss;
    Series line{.label = bound.label};
    if (key == "r" || key == "attention_loss") {
      const TableColumn bounds = view_.metric(std::string(key) + "_bound");
      const std::vector<std::size_t> all = view_.rows("all", choice);
      for (const std::string& budget : view_.budgets()) {
        const std::vector<std::optional<double>> means = view_.means(view_.rows_at(budget, all), bounds);
        std::optional<double> best;
        for (std::size_t i = 0; i < means.size(); ++i)
          if (means[i] && view_.policies()[i].role == "policy" &&
              (!best || metric_.prefers(*means[i], *best)))
            best = means[i];
        if (best) line.points.push_back({view_.place(budget), *best, {}, {}});
      }
    }
    if (!line.points.empty()) return add_line(std::move(line), bound.said);
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
    if (best == nullptr) return;
    add_line(*best, kOracle.said);
    means_.series.back().group = "oracle " + best->label + ", own split";
  }

  void add_gaps() {
    for (Series series : means_.series) {
      const auto found = all_gaps_.find(series.label);
      if (found == all_gaps_.end()) continue;
      series.points.clear();
      for (const Statistic& gap : found->second)
        series.points.push_back({view_.place(gap.budget), gap.value, gap.low, gap.high});
      gaps_.series.push_back(std::move(series));
    }
    sort_points(gaps_);
  }

  void limit_gaps() {
    constexpr std::size_t kFewPolicies = 4;  // of fewer there is no better half
    // Mean gap, policy, largest gap.
    std::vector<std::tuple<double, std::string, double>> order;
    for (const auto& [policy, gaps] : all_gaps_) {
      RunningMean mean;
      double most = 0;
      for (const Statistic& gap : gaps) {
        mean.add(gap.value);
        most = std::max(most, gap.value);
      }
      order.emplace_back(*mean.value(), policy, most);
    }
    if (order.size() < kFewPolicies) return;
    std::ranges::sort(order);
    double limit = 0;
    for (std::size_t i = 0; i < (order.size() + 1) / 2; ++i) limit = std::max(limit, std::get<2>(order[i]));
    if (limit == 0) return;
    gaps_.y.high = limit;
    for (const auto& [mean, policy, most] : order)
      if (most > limit) beyond_.insert(beyond_.begin(), policy);  // the worst first
  }

  const ResultsView& view_;
  const Metric& metric_;
  NamedPolicies named_;
  std::map<std::string, Series> curves_{};
  std::map<std::string, std::string> roles_{};
  std::map<std::string, std::vector<Statistic>> all_gaps_{};
  std::vector<std::string> beyond_{}, bounds_{};
  Chart means_{.x = view_.budget_axis(), .y = metric_axis(metric_)},
      gaps_{.x = view_.budget_axis(),
            .y = {.label = "gap to the best policy", .percent = metric_.percent, .line = 0.0}};
  std::uint64_t traces_ = 0;
  bool interval_ = false, levels_ = false;
};

/// Means alone, gaps alone if they are asked for, or both where the worst squeeze the others.
Figure quality_figure_of(const QualityCurves& curves, const Metric& metric, const ResultsView& view,
                         const FigureTables& tables, FigureChoice choice) {
  constexpr const char* kGapMeans =
      "how much worse a policy's mean is than that of the best policy of the same budget, with the interval "
      "of the paired difference; at zero is the best";
  choice.metric = metric.key;
  Figure figure{.name = "quality-" + choice.metric + (choice.gap ? "-gap" : ""),
                .title = curves.title(choice),
                .reading = curves.reading(),
                .remark = curves.remark(),
                .command = plot_command("quality", tables, choice),
                .data = curves.data()};
  std::ranges::replace(figure.name, '_', '-');
  figure.panels.push_back({"", choice.gap ? curves.gaps() : curves.means()});
  if (choice.gap) {
    figure.title.insert(std::string_view(metric.label).size(), ": gap");
    figure.reading = "The gap is " + std::string(kGapMeans) + ". Lower is better.";
  } else if (curves.squeezed()) {
    figure.panels.front().title = "mean";
    figure.panels.push_back({"gap to the best policy", curves.gaps()});
    std::get<Chart>(figure.panels.back().content).y.label.clear();
    figure.columns = 2;
    figure.reading += " The second panel shows the gap: " + std::string(kGapMeans) + ".";
    add_sentence(figure.remark,
                 "The gap has a panel because the largest is more than three times the end of its axis.");
  }
  if (const std::string beyond = curves.beyond(); figure.panels.size() > 1 || (choice.gap && !beyond.empty()))
    add_sentence(figure.remark,
                 "Its axis ends at the largest gap of the better half of the policies (by mean gap); beyond "
                 "it lie, at some budget, " +
                     beyond + '.');
  if (view.budgets().size() == 1)
    add_sentence(figure.remark, "One budget, so points and no lines: give several, as 10%,25%,50%.");
  return figure;
}

std::vector<Figure> quality(const FigureTables& tables, FigureChoice& choice) {
  if (tables.find("means") == nullptr || tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  choice.trace.clear();  // means are over traces
  const bool every = choice.metric.empty();
  std::vector<const Metric*> wanted{&one_metric(tables, choice)};
  for (const Metric& each : metrics())
    if (every && each.better != Better::neither && &each != wanted.front()) wanted.push_back(&each);
  std::vector<Figure> out;
  for (const Metric* each : wanted) {
    const QualityCurves curves(view, tables, choice, *each);
    if (!curves.empty()) out.push_back(quality_figure_of(curves, *each, view, tables, choice));
  }
  return out;
}

std::vector<Figure> quality_at_cuts(const FigureTables& tables, FigureChoice& choice) {
  const std::vector<std::string> cuts = cuts_of(tables.results);
  if (cuts.size() < 2 || tables.find("means") == nullptr) return {};
  const Metric& metric = one_metric(tables, choice);
  choice.trace.clear();  // means are over traces
  choice.cut.clear();
  std::vector<FigureTables> parts;
  std::vector<std::vector<std::string>> wanted;
  for (const std::string& cut : cuts) {
    parts.push_back(tables_at(tables, cut));
    wanted.push_back(NamedPolicies(ResultsView(parts.back().results), metric, choice).labels);
  }
  FigureChoice named = choice;
  named.policies = names_in_turns(wanted);
  Figure figure;
  double low = 0, high = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].find("means") == nullptr) continue;
    const ResultsView view(parts[i].results);
    const QualityCurves curves(view, parts[i], named, metric);
    if (curves.empty()) continue;
    for (const Series& series : curves.means().series)
      for (const Point& point : series.points) {
        low = std::min(low, point.low.value_or(point.y));
        high = std::max(high, point.high.value_or(point.y));
      }
    if (figure.panels.empty()) {
      figure.title = curves.title(choice) + ", at every cut";
      figure.reading = curves.reading() +
                       " At cut prompt the question is known to the policy, at cut question it is not: a "
                       "curve that stands higher there belongs to a policy that needs it.";
      figure.remark = curves.remark();
    }
    figure.panels.push_back({short_meaning(cuts[i]), curves.means(), cuts[i]});
  }
  if (figure.panels.size() < 2) return {};
  for (Panel& panel : figure.panels) {
    Axis& y = std::get<Chart>(panel.content).y;
    y.low = low;
    y.high = high;
  }
  figure.columns = 2;
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> quality_figures() {
  return {{.name = "cuts",
           .summary = "a metric against budget at every cut, side by side",
           .needs = "results of scope all at two cuts or more (kvsim replay --cut prompt,question)",
           .draw = quality_at_cuts,
           .data = {.panel = "cut", .series = "policy", .x = "budget"},
           .compares_cuts = true},
          {.name = "quality",
           .summary = "a metric against budget, a curve per policy, between the full cache and a bound",
           .needs = "results of scope all",
           .draw = quality}};
}

}  // namespace kvsim::analysis
