// What the next byte buys: how much a metric gains per further KiB, method by method.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/answer_view.hpp"
#include "analysis/figures/byte_spots.hpp"

namespace kvsim::analysis {
namespace {

/// Gains below this share of the largest are left out: they would take most of a logarithmic axis.
constexpr double kLeastGain = 1e-4;

/// Gains along the front of a method: what it gives for its bytes, whatever its budget and settings.
Series gains_of(const std::string& family, const std::vector<ByteSpot>& spots, const Metric& metric) {
  Series series{.label = family};
  const std::vector<ByteSpot> front = front_of(spots, metric);
  for (std::size_t i = 1; i < front.size(); ++i) {
    const double gain =
        std::fabs(front[i].value - front[i - 1].value) / ((front[i].bytes - front[i - 1].bytes) / 1024);
    // A gain holds from one spot to the next.
    series.points.push_back({front[i - 1].bytes / 1024, gain, {}, {}});
    series.points.push_back({front[i].bytes / 1024, gain, {}, {}});
  }
  return series;
}

/// "less attention loss per further KiB".
std::string gain_label(const Metric& metric) {
  return (metric.better == Better::lower ? "less " : "more ") + std::string(metric.label) +
         " per further KiB";
}

/// Those with a name, of which the first few get it: the ones asked for, else first those that have a place
/// on the front of all.
std::vector<std::string> named_families(const ByteStudy& study, const FigureChoice& choice) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& family) {
    if (std::find(out.begin(), out.end(), family) == out.end()) out.push_back(family);
  };
  if (choice.policies.empty())
    for (const ByteSpot& spot : front_of(study.spots, *study.metric)) add(spot.family);
  for (const ByteSpot& spot : study.spots)
    if (choice.wants(spot.policy)) add(spot.family);
  return out;
}

Chart chart_of(const ByteStudy& study, const std::vector<std::string>& named) {
  const Metric& metric = *study.metric;
  std::map<std::string, std::vector<ByteSpot>> families;
  std::vector<std::string> order;
  for (const ByteSpot& spot : study.spots) {
    auto [found, fresh] = families.try_emplace(spot.family);
    if (fresh) order.push_back(spot.family);
    found->second.push_back(spot);
  }
  std::map<std::string, Series> gains;
  double most = 0;
  for (const std::string& family : order) {
    const Series& series = gains[family] = gains_of(family, families.at(family), metric);
    for (const Point& point : series.points) most = std::max(most, point.y);
  }
  Chart chart;
  chart.x.label = study.axis;
  chart.x.log = chart.y.log = true;
  chart.y.percent = metric.percent;
  chart.y.label = gain_label(metric);
  for (const std::string& family : order) {
    Series& series = gains[family];
    std::erase_if(series.points, [&](const Point& point) { return point.y < kLeastGain * most; });
    if (series.points.empty()) continue;
    const auto place = std::find(named.begin(), named.end(), family);
    if (place != named.end()) {
      series.colour = static_cast<int>(place - named.begin());
    } else {
      series.group = "other methods";
      series.weight = Weight::faint;
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Figure> figure_of(const std::vector<ByteStudy>& studies, const char* name,
                              const FigureTables& tables, const FigureChoice& choice) {
  Figure figure;
  const Metric* metric = nullptr;
  std::vector<std::vector<std::string>> wanted;
  for (const ByteStudy& study : studies) wanted.push_back(named_families(study, choice));
  const std::vector<std::string> named = names_in_turns(wanted);
  for (const ByteStudy& study : studies) {
    if (metric == nullptr) metric = study.metric;
    Chart chart = chart_of(study, named);
    if (study.metric == metric && !chart.series.empty())
      figure.panels.push_back({study.cut, std::move(chart)});
  }
  if (figure.panels.empty()) return {};
  figure.data = figure_data(
      figure,
      {.panel = figure.panels.size() > 1 ? "cut" : "", .series = "method", .x = "kib", .y = "gain_per_kib"});
  for (Panel& panel : figure.panels)
    if (!panel.title.empty()) panel.title = short_meaning(panel.title);
  figure.name = name;
  figure.title = "What the next byte buys: " + gain_label(*metric);
  figure.reading =
      "A method's curve goes along the best that its budgets and settings give for their bytes. At one place "
      "of "
      "the axis the highest curve is the method that gains most from a further byte; a method whose curve "
      "ends "
      "has nothing more to buy. Gains below a ten-thousandth of the largest are left out.";
  FigureChoice made = choice;
  made.metric = metric->key;
  figure.command = plot_command(name, tables, made);
  figure.columns = 2;
  return {std::move(figure)};
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  return figure_of(replayed_bytes(tables, choice, Bytes::held), "next-byte", tables, choice);
}

std::vector<Figure> build_answers(const FigureTables& tables, const FigureChoice& choice) {
  return figure_of(answered_bytes(tables, choice, Bytes::held), "next-byte-answers", tables, choice);
}

}  // namespace

FigureKind next_byte_figure() {
  return {"next-byte", "what a metric gains per further KiB held, a curve per method",
          "results of scope all with several budgets or settings", build};
}

FigureKind next_byte_answers_figure() {
  return {"next-byte-answers", "the same of right answers, or --metric kl or same_top",
          "rows of kvsim evaluate, or the folder of a study with the closed loop", build_answers,
          kAnswersTable};
}

}  // namespace kvsim::analysis
