// What prefix caches hit over their capacity, and by the depth of a prompt.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/requests/hit_tables.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostHitsNamed = 8, kMostHitPanels = 6;

/// Rows of all requests, of the policies chosen and of the ceiling.
class Hits {
 public:
  Hits(const Records& hits, const FigureChoice& choice)
      : hits_(hits), policy_(hits, "policy"), params_(hits, "params"), part_(hits, "part") {
    rows_ = rows_where(hits, {{"window", "all"}});
    for (const std::size_t row : rows_) add_once(params_of_[policy_.text(row)], params_.text(row));
    for (const std::size_t row : rows_)
      if (!ceiling(row)) add_once(policies_, label(row));
    for (const std::string& wanted : choice.policies) known_name(wanted, policies_, "--policy");
    std::erase_if(rows_, [&](std::size_t row) { return !ceiling(row) && !choice.wants(label(row)); });
    std::erase_if(policies_, [&](const std::string& policy) { return !choice.wants(policy); });
    name_most_hits();
  }

  const std::vector<std::size_t>& rows() const { return rows_; }
  const std::vector<std::string>& policies() const { return policies_; }
  bool ceiling(std::size_t row) const { return policy_.text(row) == "ceiling"; }
  const std::string& part(std::size_t row) const { return part_.text(row); }
  std::optional<double> number(std::size_t row, const char* key) const {
    return analysis::number(hits_.rows[row][hits_.column(key)]);
  }
  /// The name, with parameters where several rows of one name differ in them.
  std::string label(std::size_t row) const {
    const std::string& name = policy_.text(row);
    return ceiling(row) || params_of_.at(name).size() < 2 ? name : name + "(" + params_.text(row) + ")";
  }
  bool has_parts() const {
    return std::ranges::any_of(rows_, [&](std::size_t row) { return !part(row).empty(); });
  }

  /// Colours for the named, dashes for what there is to reach, grey for others.
  void style(Chart& chart) const {
    for (Series& series : chart.series) {
      series.policy = series.label;
      if (series.label == "opt" || series.label == "ceiling")
        series.weight = Weight::bound;
      else if (place_in(named_, series.label) < 0)
        series.weight = Weight::faint, series.label = "others";
    }
    sort_points(chart);
  }

  std::string remark() const {
    if (policies_.size() == named_.size() + (place_in(policies_, "opt") < 0 ? 0 : 1)) return "";
    return "Of " + std::to_string(policies_.size()) + " policies the " + std::to_string(named_.size()) +
           " that hit most on average, and differ from one another, have a colour; --policy chooses others.";
  }

 private:
  /// Policies that get a colour: those that hit most, on average over the rows. One that hits the same as
  /// another in every row, as rules about categories do in a trace without any, stands under the other.
  void name_most_hits() {
    std::map<std::string, std::vector<double>> hits;
    for (const std::size_t row : rows_)
      if (!ceiling(row)) hits[label(row)].push_back(number(row, "hit_rate").value_or(0));
    for (const std::string& policy : policies_) {
      const auto same = [&](const std::string& other) { return hits[other] == hits[policy]; };
      if (policy != "opt" && std::ranges::none_of(named_, same)) named_.push_back(policy);
    }
    if (named_.size() <= kMostHitsNamed) return;
    const auto sum = [&](const std::string& policy) {
      return std::accumulate(hits[policy].begin(), hits[policy].end(), 0.0);
    };
    std::ranges::stable_sort(named_,
                             [&](const std::string& a, const std::string& b) { return sum(a) > sum(b); });
    named_.resize(kMostHitsNamed);
  }

  const Records& hits_;
  TableColumn policy_, params_, part_;
  std::vector<std::size_t> rows_{};
  std::map<std::string, std::vector<std::string>> params_of_{};
  std::vector<std::string> policies_{}, named_{};
};

/// Curves of a column over the capacity; empty where no row has it.
Chart over_capacity(const Hits& hits, const char* key, Axis y) {
  const bool bytes = std::ranges::any_of(
      hits.rows(), [&](std::size_t row) { return hits.number(row, "capacity_bytes").has_value(); });
  Chart chart{.x = {.label = bytes ? "capacity (GiB)" : "capacity (K tokens)", .log = true},
              .y = std::move(y)};
  std::optional<double> ceiling;
  std::vector<double> places;
  for (const std::size_t row : hits.rows()) {
    const auto value = hits.number(row, key);
    if (hits.ceiling(row) && value) ceiling = *value;
    const auto capacity = hits.number(row, bytes ? "capacity_bytes" : "capacity_tokens");
    if (hits.ceiling(row) || !value || !capacity) continue;
    places.push_back(*capacity / (bytes ? kGibibyte : 1024));
    series_named(chart, hits.label(row)).points.push_back({places.back(), *value, {}, {}});
  }
  std::ranges::stable_sort(chart.series, [&](const Series& a, const Series& b) {
    return place_in(hits.policies(), a.label) < place_in(hits.policies(), b.label);
  });
  if (ceiling && !places.empty()) {
    const auto [low, high] = std::ranges::minmax_element(places);
    series_named(chart, "ceiling").points = {{*low, *ceiling, {}, {}}, {*high, *ceiling, {}, {}}};
  }
  hits.style(chart);
  return chart;
}

std::vector<Figure> over_capacities(const FigureTables& tables, const FigureChoice& choice) {
  const Records* table = tables.find(kHitsTable);
  if (table == nullptr) return {};
  const Hits hits(*table, choice);
  if (hits.has_parts()) return {};
  Figure figure{
      .title = "What prefix caches hit",
      .reading =
          "A curve is a replacement policy; opt knows the future, the ceiling is a cache without limits.",
      .remark = hits.remark()};
  const auto add = [&](const char* title, const char* key, Axis axis) {
    Chart chart = over_capacity(hits, key, std::move(axis));
    if (!chart.series.empty()) figure.panels.push_back({title, std::move(chart)});
  };
  add("tokens that hit", "hit_rate", {.label = "of prompt tokens", .low = 0, .percent = true});
  add("prefill seconds saved", "saved_share", {.label = "of prefill seconds", .low = 0, .percent = true});
  add("saved for each GiB", "saved_seconds_per_gib", {.label = "s per GiB", .log = true});
  if (figure.panels.empty()) return {};
  if (figure.panels.size() == 1) figure.width = Width::column;
  return {figure};
}

std::string capacity_title(double tokens) {
  const double millions = tokens / (1024 * 1024);
  return (millions == std::floor(millions) ? rounded_text(millions) + "M" : tokens_text(tokens)) + " tokens";
}

std::vector<Figure> by_parts(const FigureTables& tables, const FigureChoice& choice) {
  const Records* table = tables.find(kHitsTable);
  if (table == nullptr) return {};
  const Hits hits(*table, choice);
  std::map<double, Chart> charts;  // by capacity
  std::vector<std::string> parts;
  for (const std::size_t row : hits.rows()) {
    if (hits.part(row).empty()) continue;
    add_once(parts, hits.part(row));
    if (const auto capacity = hits.number(row, "capacity_tokens")) charts[*capacity];
  }
  Figure figure{.title = "Which parts of the requests hit",
                .reading = "A panel is a capacity; a depth is named by its first token.",
                .remark = hits.remark()};
  for (auto& [capacity, chart] : charts) {
    if (figure.panels.size() == kMostHitPanels) break;
    chart.x = {.label = "part", .categories = parts};
    chart.y = {.label = "of its tokens that hit", .low = 0, .percent = true};
    for (const std::size_t row : hits.rows()) {
      const auto rate = hits.number(row, "hit_rate");
      if (!rate || hits.part(row).empty()) continue;
      if (!hits.ceiling(row) && hits.number(row, "capacity_tokens") != capacity) continue;
      series_named(chart, hits.label(row))
          .points.push_back({static_cast<double>(place_in(parts, hits.part(row))), *rate, {}, {}});
    }
    hits.style(chart);
    figure.panels.push_back({capacity_title(capacity), std::move(chart)});
  }
  if (figure.panels.empty()) return {};
  if (charts.size() > kMostHitPanels) add_sentence(figure.remark, "The capacities above are left out.");
  return {figure};
}

}  // namespace

std::vector<FigureKind> hit_figures() {
  return {{.name = "hits",
           .summary = "what prefix caches hit, and the seconds they save, over their capacity",
           .needs = "rows of kvsim requests replay",
           .draw = over_capacities,
           .table = kHitsTable,
           .columns = hit_columns,
           .data = {.panel = "panel", .series = "policy", .x = "capacity", .y = "value"}},
          {.name = "hits-parts",
           .summary = "what prefix caches hit by depth, turn or category",
           .needs = "rows of kvsim requests replay --by depth, turn or category",
           .draw = by_parts,
           .table = kHitsTable,
           .columns = hit_columns,
           .data = {.panel = "capacity", .series = "policy", .x = "part", .y = "hit_rate"}}};
}

}  // namespace kvsim::analysis
