// Bytes against loss: what a policy costs to hold, or to read at each step, and which ones nothing beats in
// both.
#include <algorithm>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/answer_view.hpp"
#include "analysis/figures/byte_spots.hpp"

namespace kvsim::analysis {
namespace {

bool same_cell(const ByteSpot& a, const ByteSpot& b) {
  return a.policy == b.policy && a.budget == b.budget;
}

Chart chart_of(const ByteStudy& study, const std::vector<std::string>& coloured) {
  const std::vector<ByteSpot> front = front_of(study.spots, *study.metric);
  Chart chart{.y = metric_axis(*study.metric)};
  chart.x.label = study.axis;
  chart.x.log = true;
  Series line{.label = "front", .weight = Weight::bound, .group = "front: nothing is better in both"};
  for (const ByteSpot& spot : front) line.points.push_back({spot.bytes / 1024, spot.value, {}, {}});
  std::map<std::string, Series> off_front, on_front;
  for (const ByteSpot& spot : study.spots) {
    const bool best =
        std::any_of(front.begin(), front.end(), [&](const ByteSpot& each) { return same_cell(each, spot); });
    Series& series = (best ? on_front : off_front)[spot.policy];
    series.label = spot.policy;
    series.dots = true;
    series.points.push_back({spot.bytes / 1024, spot.value, {}, {}});
  }
  for (auto& [policy, series] : off_front) {
    series.group = "other policies and budgets";
    series.weight = Weight::faint;
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back(std::move(line));
  for (const ByteSpot& spot : front) {
    const auto found = on_front.find(spot.policy);
    if (found == on_front.end()) continue;
    const auto place = std::find(coloured.begin(), coloured.end(), spot.policy);
    found->second.colour = place == coloured.end() ? -1 : static_cast<int>(place - coloured.begin());
    chart.series.push_back(std::move(found->second));
    on_front.erase(found);
  }
  return chart;
}

std::vector<Figure> figure_of(const std::vector<ByteStudy>& studies, Bytes counted, const char* name,
                              const FigureTables& tables, const FigureChoice& choice) {
  if (studies.empty()) return {};
  const Metric& metric = *studies.front().metric;
  std::vector<std::vector<std::string>> wanted;
  for (const ByteStudy& study : studies) wanted.push_back(study.named);
  const std::vector<std::string> coloured =
      studies.size() == 1 ? studies.front().named : names_in_turns(wanted);
  Figure figure;
  for (const ByteStudy& study : studies)
    if (study.metric == &metric) figure.panels.push_back({study.cut, chart_of(study, coloured)});
  figure.data = figure_data(figure, {.panel = figure.panels.size() > 1 ? "cut" : "",
                                     .series = "policy",
                                     .x = counted == Bytes::read ? "read_kib" : "kept_kib",
                                     .y = metric.key});
  for (Panel& panel : figure.panels)
    if (!panel.title.empty()) panel.title = short_meaning(panel.title);
  figure.name = name;
  figure.title = capitalised(metric.label) + " against the bytes " +
                 (counted == Bytes::read ? "read per step" : "held") + ", every policy and budget";
  figure.reading = std::string("A dot is a policy at a budget; ") +
                   (metric.better == Better::lower ? "lower" : "higher") +
                   " and further left is better. Named are the policies on the front: nothing is "
                   "better in one and as good in the other.";
  FigureChoice made = choice;
  made.metric = metric.key;
  figure.command = plot_command(name, tables, made);
  figure.columns = 2;
  return {std::move(figure)};
}

template <Bytes counted>
std::vector<Figure> of_results(const FigureTables& tables, const FigureChoice& choice) {
  constexpr const char* kName = counted == Bytes::read ? "read-pareto" : "pareto";
  return figure_of(replayed_bytes(tables, choice, counted), counted, kName, tables, choice);
}

template <Bytes counted>
std::vector<Figure> of_answers(const FigureTables& tables, const FigureChoice& choice) {
  constexpr const char* kName = counted == Bytes::read ? "read-pareto-answers" : "pareto-answers";
  return figure_of(answered_bytes(tables, choice, counted), counted, kName, tables, choice);
}

}  // namespace

FigureKind pareto_figure() {
  return {"pareto", "bytes held against a metric, and the policies nothing beats in both",
          "results of scope all", of_results<Bytes::held>};
}

FigureKind pareto_answers_figure() {
  return {"pareto-answers", "bytes held against right answers, or --metric kl or same_top",
          "rows of kvsim evaluate, or the folder of a study with the closed loop", of_answers<Bytes::held>,
          kAnswersTable};
}

FigureKind read_pareto_figure() {
  return {"read-pareto", "bytes read per step against a metric, and the policies nothing beats in both",
          "results of scope all in which a policy reads a part of what it stores, such as full+quest",
          of_results<Bytes::read>};
}

FigureKind read_pareto_answers_figure() {
  return {"read-pareto-answers", "bytes read per step against right answers, or --metric kl or same_top",
          "rows of kvsim evaluate, or the folder of a study with the closed loop, in which a policy reads a "
          "part of what it stores, such as full+quest",
          of_answers<Bytes::read>, kAnswersTable};
}

}  // namespace kvsim::analysis
