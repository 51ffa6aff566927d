// Compression against reuse: what is hit, how long the first token takes, and who still answers.
#include <algorithm>
#include <map>

#include "analysis/figures/cost_view.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/serving/compression_rows.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCurves = 8;

class CompressionView {
 public:
  CompressionView(const Records& table, const FigureChoice& choice)
      : table_(table), keeping_(table, "keeping"), policy_(table, "policy"), budget_(table, "budget") {
    std::vector<std::string> policies;
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      if (!policy_.text(row).empty()) policies.push_back(policy_.text(row));
    for (const std::string& wanted : choice.policies) known_name(wanted, policies, "--policy");
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      if (policy_.text(row).empty() || choice.wants(policy_.text(row))) rows_.push_back(row);
    for (const std::size_t row : rows_)
      if (!bound(row) && std::find(names_.begin(), names_.end(), name(row)) == names_.end())
        names_.push_back(name(row));
  }

  const std::vector<std::size_t>& rows() const { return rows_; }
  std::size_t curves() const { return names_.size(); }
  double rate(std::size_t row) const { return number(row, "rate").value_or(1); }
  std::optional<double> number(std::size_t row, const char* key) const {
    return analysis::number(table_.rows[row][table_.column(key)]);
  }
  /// A chart of one number over another at one rate, a series per engine.
  Chart chart(double at, const char* x, double x_unit, const char* y) const {
    Chart out;
    std::map<std::string, std::size_t> places;
    for (const std::size_t row : rows_) {
      const auto across = number(row, x), up = number(row, y);
      if (rate(row) != at || !across || !up) continue;
      const auto [found, fresh] = places.emplace(name(row), out.series.size());
      if (fresh) out.series.push_back(series(row));
      out.series[found->second].points.push_back({*across * x_unit, *up, {}, {}});
    }
    for (Series& each : out.series)
      std::sort(each.points.begin(), each.points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
    return out;
  }

 private:
  /// What keeps every token as it comes.
  bool bound(std::size_t row) const { return policy_.text(row).empty(); }
  std::string name(std::size_t row) const {
    if (bound(row)) return keeping_.text(row);
    const std::string& budget = budget_.text(row);
    return policy_.text(row) + (budget.empty() ? "" : " " + budget) +
           (keeping_.text(row) == keeping_name(Keeping::unknown) ? ", shared" : "");
  }
  Series series(std::size_t row) const {
    Series out{.label = name(row)};
    const auto found = std::find(names_.begin(), names_.end(), out.label);
    if (bound(row))
      out.weight = Weight::bound;
    else if (static_cast<std::size_t>(found - names_.begin()) < kMostCurves)
      out.colour = static_cast<int>(found - names_.begin());
    else
      out.weight = Weight::faint, out.label = "others";
    return out;
  }

  const Records& table_;
  TableColumn keeping_, policy_, budget_;
  std::vector<std::size_t> rows_{};
  std::vector<std::string> names_{};
};

Figure figure_at(const CompressionView& view, double rate) {
  Figure figure;
  const auto add = [&](const char* title, Chart chart, Axis x, Axis y) {
    if (chart.series.empty()) return;
    chart.x = std::move(x);
    chart.y = std::move(y);
    figure.panels.push_back({title, std::move(chart)});
  };
  const Axis memory{.label = "memory (GiB)", .log = true, .at_values = true};
  add("tokens that hit", view.chart(rate, "memory_bytes", 1 / kGibibyte, "hit_rate"), memory,
      {.label = "of prompt tokens", .low = 0, .percent = true});
  add("first token", view.chart(rate, "memory_bytes", 1 / kGibibyte, "ttft_p50"), memory,
      {.label = "TTFT p50 (s)", .log = true});
  Chart answers = view.chart(rate, "ttft_p50", 1, "right");
  answers.joined = false;
  add("who still answers", std::move(answers), {.label = "TTFT p50 (s)", .log = true},
      {.label = "of the items", .low = 0, .percent = true});
  return figure;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records* table = tables.find(kCompressionTable);
  if (table == nullptr) return {};
  const CompressionView view(*table, choice);
  std::vector<double> rates;
  for (const std::size_t row : view.rows())
    if (std::find(rates.begin(), rates.end(), view.rate(row)) == rates.end()) rates.push_back(view.rate(row));
  std::vector<Figure> out;
  for (const double rate : rates) {
    Figure figure = figure_at(view, rate);
    if (figure.panels.empty()) continue;
    figure.name = "compression" + (out.empty() ? std::string() : "-" + std::to_string(out.size() + 1));
    figure.title = "Compression against reuse";
    if (rates.size() > 1) figure.title += ", " + rounded_text(rate) + " times as fast as the trace";
    figure.reading =
        "Engines of equal memory; shared: blocks of prompts stay for later ones. A policy that shares does "
        "not "
        "know the question.";
    if (view.curves() > kMostCurves)
      figure.remark = "The first " + std::to_string(kMostCurves) + " have a colour; --policy chooses others.";
    figure.command = plot_command("compression", tables, choice);
    figure.data = figure_data(figure, {.panel = "panel", .series = "engine", .x = "x", .y = "y"});
    out.push_back(std::move(figure));
  }
  return out;
}

}  // namespace

FigureKind compression_figure() {
  return {"compression", "prefix caching, compression or both on equal memory: hits, TTFT, answers",
          "rows of kvsim requests compression", build, kCompressionTable};
}

}  // namespace kvsim::analysis
