// What prefix caches hit over their capacity, and by the depth of a prompt.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/figures/cost_view.hpp"
#include "analysis/prefix/hit_records.hpp"
#include "analysis/results/numbers.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostNamed = 8, kMostPanels = 6;

void add_once(std::vector<std::string>& all, const std::string& item) {
  if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
}

/// Rows of all requests, and policies as their labels.
class HitView {
 public:
  HitView(const Records& hits, const FigureChoice& choice)
      : hits_(hits), policy_(hits, "policy"), params_(hits, "params"), part_(hits, "part") {
    const TableColumn window(hits, "window");
    for (std::size_t row = 0; row < hits.rows.size(); ++row)
      if (window.text(row) == "all") rows_.push_back(row);
    for (const std::size_t row : rows_)
      if (policy_.text(row) != "ceiling") add_once(params_of_[policy_.text(row)], params_.text(row));
    for (const std::size_t row : rows_)
      if (policy_.text(row) != "ceiling") add_once(policies_, label(row));
    for (const std::string& wanted : choice.policies) known_name(wanted, policies_, "--policy");
    std::erase_if(
        rows_, [&](std::size_t row) { return policy_.text(row) != "ceiling" && !choice.wants(label(row)); });
    std::erase_if(policies_, [&](const std::string& policy) { return !choice.wants(policy); });
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
    const auto found = params_of_.find(name);
    if (found == params_of_.end() || found->second.size() < 2) return name;
    return name + "(" + params_.text(row) + ")";
  }
  bool has_parts() const {
    return std::any_of(rows_.begin(), rows_.end(), [&](std::size_t row) { return !part(row).empty(); });
  }
  bool in_bytes() const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](std::size_t row) { return number(row, "capacity_bytes").has_value(); });
  }

  /// Policies that get a colour: those that hit most, on average over the rows. One that hits the same as
  /// another in every row, as rules about categories do in a trace without any, stands under the other.
  std::vector<std::string> named() const {
    std::map<std::string, std::vector<double>> hits;
    for (const std::size_t row : rows_)
      if (!ceiling(row)) hits[label(row)].push_back(number(row, "hit_rate").value_or(0));
    std::vector<std::string> out;
    for (const std::string& policy : policies_) {
      const auto same = [&](const std::string& other) { return hits[other] == hits[policy]; };
      if (policy != "opt" && std::none_of(out.begin(), out.end(), same)) out.push_back(policy);
    }
    if (out.size() <= kMostNamed) return out;
    const auto sum = [&](const std::string& policy) {
      return std::accumulate(hits[policy].begin(), hits[policy].end(), 0.0);
    };
    std::stable_sort(out.begin(), out.end(),
                     [&](const std::string& a, const std::string& b) { return sum(a) > sum(b); });
    out.resize(kMostNamed);
    return out;
  }

 private:
  const Records& hits_;
  TableColumn policy_, params_, part_;
  std::vector<std::size_t> rows_{};
  std::map<std::string, std::vector<std::string>> params_of_{};
  std::vector<std::string> policies_{};
};

Series series_of(const std::string& label, const std::vector<std::string>& named) {
  Series out{.label = label};
  const auto found = std::find(named.begin(), named.end(), label);
  if (label == "opt" || label == "ceiling")
    out.weight = Weight::bound;
  else if (found == named.end())
    out.weight = Weight::faint, out.label = "others";
  else
    out.colour = static_cast<int>(found - named.begin());
  return out;
}

void sort_points(Chart& chart) {
  for (Series& series : chart.series)
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
}

/// Curves of a column over the capacity; empty where no row has it.
Chart over_capacity(const HitView& view, const char* key, Axis y) {
  const bool bytes = view.in_bytes();
  Chart chart{.x = {.label = bytes ? "capacity (GiB)" : "capacity (K tokens)", .log = true},
              .y = std::move(y)};
  const std::vector<std::string> named = view.named();
  std::map<std::string, Series> curves;
  std::optional<double> ceiling;
  std::vector<double> places;
  for (const std::size_t row : view.rows()) {
    const auto value = view.number(row, key);
    if (view.ceiling(row)) {
      if (value) ceiling = *value;
      continue;
    }
    const auto capacity = view.number(row, bytes ? "capacity_bytes" : "capacity_tokens");
    if (!value || !capacity) continue;
    const double x = *capacity / (bytes ? kGibibyte : 1024);
    places.push_back(x);
    auto [found, fresh] = curves.emplace(view.label(row), Series{});
    if (fresh) found->second = series_of(view.label(row), named);
    found->second.points.push_back({x, *value, {}, {}});
  }
  for (const std::string& policy : view.policies())
    if (const auto found = curves.find(policy); found != curves.end())
      chart.series.push_back(std::move(found->second));
  if (ceiling && !places.empty()) {
    const auto [low, high] = std::minmax_element(places.begin(), places.end());
    chart.series.push_back(series_of("ceiling", named));
    chart.series.back().points = {{*low, *ceiling, {}, {}}, {*high, *ceiling, {}, {}}};
  }
  sort_points(chart);
  return chart;
}

std::string capacity_title(double tokens) {
  const double millions = tokens / (1024 * 1024);
  return (millions == std::floor(millions) ? rounded_text(millions) + "M" : tokens_text(tokens)) + " tokens";
}

std::string remark_of(const HitView& view) {
  const std::size_t named = view.named().size();
  const bool opt = std::find(view.policies().begin(), view.policies().end(), "opt") != view.policies().end();
  if (view.policies().size() == named + (opt ? 1 : 0)) return "";
  return "Of " + std::to_string(view.policies().size()) + " policies the " + std::to_string(named) +
         " that hit most on average, and differ from one another, have a colour; --policy chooses others.";
}

std::vector<Figure> build_hits(const FigureTables& tables, const FigureChoice& choice) {
  const Records* hits = tables.find(kHitsTable);
  if (hits == nullptr) return {};
  const HitView view(*hits, choice);
  if (view.has_parts()) return {};
  Figure figure;
  const auto add = [&](const char* title, const char* key, Axis axis) {
    Chart chart = over_capacity(view, key, std::move(axis));
    if (!chart.series.empty()) figure.panels.push_back({title, std::move(chart)});
  };
  add("tokens that hit", "hit_rate", {.label = "of prompt tokens", .low = 0, .percent = true});
  add("prefill seconds saved", "saved_share", {.label = "of prefill seconds", .low = 0, .percent = true});
  add("saved for each GiB", "saved_seconds_per_gib", {.label = "s per GiB", .log = true});
  if (figure.panels.empty()) return {};
  figure.name = "hits";
  figure.title = "What prefix caches hit";
  figure.reading =
      "A curve is a replacement policy; opt knows the future, the ceiling is a cache without limits.";
  figure.remark = remark_of(view);
  figure.command = plot_command("hits", tables, choice);
  if (figure.panels.size() == 1) figure.width = Width::column;
  figure.data = figure_data(figure, {.panel = "panel", .series = "policy", .x = "capacity", .y = "value"});
  return {figure};
}

std::vector<Figure> build_parts(const FigureTables& tables, const FigureChoice& choice) {
  const Records* hits = tables.find(kHitsTable);
  if (hits == nullptr) return {};
  const HitView view(*hits, choice);
  if (!view.has_parts()) return {};
  const std::vector<std::string> named = view.named();
  std::vector<double> capacities;
  std::vector<std::string> parts;
  for (const std::size_t row : view.rows()) {
    if (view.part(row).empty()) continue;
    add_once(parts, view.part(row));
    if (const auto capacity = view.number(row, "capacity_tokens")) capacities.push_back(*capacity);
  }
  std::sort(capacities.begin(), capacities.end());
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  Figure figure;
  for (std::size_t i = 0; i < std::min(capacities.size(), kMostPanels); ++i) {
    Chart chart{.x = {.label = "part", .categories = parts},
                .y = {.label = "of its tokens that hit", .low = 0, .percent = true}};
    for (const std::size_t row : view.rows()) {
      const auto rate = view.number(row, "hit_rate");
      if (!rate || view.part(row).empty()) continue;
      if (!view.ceiling(row) && view.number(row, "capacity_tokens") != capacities[i]) continue;
      const std::string label = view.ceiling(row) ? "ceiling" : view.label(row);
      auto found = std::find_if(chart.series.begin(), chart.series.end(),
                                [&](const Series& series) { return series.group == label; });
      if (found == chart.series.end()) {
        chart.series.push_back(series_of(label, named));
        chart.series.back().group = label;
        found = chart.series.end() - 1;
      }
      const auto place = std::find(parts.begin(), parts.end(), view.part(row)) - parts.begin();
      found->points.push_back({static_cast<double>(place), *rate, {}, {}});
    }
    for (Series& series : chart.series) series.group.clear();
    sort_points(chart);
    figure.panels.push_back({capacity_title(capacities[i]), std::move(chart)});
  }
  if (figure.panels.empty()) return {};
  figure.name = "hits-parts";
  figure.title = "Which parts of the requests hit";
  figure.reading = "A panel is a capacity; a depth is named by its first token.";
  figure.remark = remark_of(view);
  if (capacities.size() > kMostPanels)
    figure.remark += (figure.remark.empty() ? "" : " ") + std::string("The capacities above are left out.");
  figure.command = plot_command("hits-parts", tables, choice);
  figure.data = figure_data(figure, {.panel = "capacity", .series = "policy", .x = "part", .y = "hit_rate"});
  return {figure};
}

}  // namespace

FigureKind hits_figure() {
  return {"hits", "what prefix caches hit, and the seconds they save, over their capacity",
          "rows of kvsim requests replay", build_hits, kHitsTable};
}

FigureKind hits_parts_figure() {
  return {"hits-parts", "what prefix caches hit by depth, turn or category",
          "rows of kvsim requests replay --by depth, turn or category", build_parts, kHitsTable};
}

}  // namespace kvsim::analysis
