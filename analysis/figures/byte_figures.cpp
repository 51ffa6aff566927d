// Bytes held or read against a metric: which policies nothing beats in both, what the next byte buys, and
// what selections find for what they read.
#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/figure_rows.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// What is counted, the index of a selection included.
enum class Bytes {
  held,  ///< stored: of results after the prompt, of answers at the end
  read,  ///< at a step; where nothing selects what it reads these are those held, and not shown
};

/// A policy at a budget, by its means over traces or items.
struct Spot {
  std::string policy;  ///< its label
  std::string family;  ///< its parts without their parameters: settings of one method share it
  std::string budget;
  double kib = 0, value = 0;
};

/// The spots of what one panel is of.
struct Study {
  std::string cut{};  ///< of answers; empty for results, which are of one cut
  const Metric* metric = nullptr;
  std::vector<Spot> spots{};
  std::vector<std::string> named{};  ///< policies with a name and a colour
  std::string axis{};                ///< what the bytes are, with their unit
};

/// "snapkv+kivi" of "snapkv(window=16)+kivi(bits=2)".
std::string family_of(const std::string& label) {
  std::string out;
  int depth = 0;
  for (const char c : label) {
    if (c == '(') ++depth;
    if (depth == 0) out += c;
    if (c == ')') --depth;
  }
  return out;
}

/// Those that no other one beats, fewest bytes first: not in bytes without losing in the metric, nor the
/// other way round.
std::vector<Spot> front_of(std::vector<Spot> spots, const Metric& metric) {
  std::ranges::stable_sort(spots, [&](const Spot& a, const Spot& b) {
    return a.kib < b.kib || (a.kib == b.kib && metric.prefers(a.value, b.value));
  });
  std::vector<Spot> front;
  for (const Spot& spot : spots)
    if (front.empty() || metric.prefers(spot.value, front.back().value)) front.push_back(spot);
  return front;
}

/// What rows hold: which column beside the index, and how that and the mean are said.
struct Held {
  const char *column, *said, *mean;
};
constexpr Held kReplayed{"kept_bytes", "held after the prompt", "traces"},
    kAnswered{"held_bytes", "held at the end", "items"};

/// Whether something reads a part of what it stores.
bool selects(const ResultsView& view, const std::vector<std::size_t>& rows) {
  const TableColumn index = view.metric("index_bytes");
  return std::ranges::any_of(rows, [&](std::size_t row) { return index.number(row).has_value(); });
}

/// Of every policy and budget that has both numbers, oracles left out; what decides by itself how much it
/// keeps once, not at every budget.
Study study_of(const ResultsView& view, const std::vector<std::size_t>& all, Bytes counted, const Held& held,
               const Metric& metric) {
  const TableColumn values = view.metric(metric.key), index = view.metric("index_bytes"),
                    bytes = view.metric(counted == Bytes::read ? "read_bytes" : held.column);
  Study study{.metric = &metric};
  study.axis = std::string("KiB ") + (counted == Bytes::read ? "read per step" : held.said) +
               (selects(view, all) ? ", index included" : "") + " (mean over " + held.mean + ")";
  std::set<std::size_t> own;  // policies that are there, whatever the budget
  for (const std::string& budget : view.budgets()) {
    const std::vector<std::size_t> rows = view.rows_with(view.rows_at(budget, all), values);
    const auto mean_bytes = view.means(rows, bytes), mean_index = view.means(rows, index),
               mean_values = view.means(rows, values);
    for (std::size_t i = 0; i < mean_bytes.size(); ++i) {
      const ResultsView::Policy& policy = view.policies()[i];
      if (!mean_bytes[i] || !mean_values[i] || policy.role == "oracle") continue;
      if (policy.role == "own_budget" && !own.insert(i).second) continue;
      const double beside = counted == Bytes::held ? mean_index[i].value_or(0) : 0;
      study.spots.push_back(
          {policy.label, family_of(policy.label), budget, (*mean_bytes[i] + beside) / 1024, *mean_values[i]});
    }
  }
  return study;
}

/// Of results: by the metric chosen or the one that leads; by total variation where numbers are stored
/// otherwise and the leading metric is not defined.
std::vector<Study> replayed(const FigureTables& tables, const FigureChoice& choice, Bytes counted) {
  const ResultsView view(tables.results);
  const std::vector<std::size_t> rows = view.rows("all", choice);
  if (rows.empty() || (counted == Bytes::read && !selects(view, rows))) return {};
  const Metric& leading = leading_metric(tables);
  const Metric& metric = choice.metric.empty()
                             ? more_defined(view, rows, leading, analysis::metric("total_variation"))
                             : analysis::metric(choice.metric);
  if (metric.better == Better::neither) return {};
  Study study = study_of(view, rows, counted, kReplayed, metric);
  if (study.spots.empty()) return {};
  study.named = NamedPolicies(view, leading, choice).labels;
  return {std::move(study)};
}

/// Of answers, one per cut: by the metric chosen, else by answers where the full cache has any right, else by
/// KL. Throws Error(usage) for a metric that answers do not have.
std::vector<Study> answered(const FigureTables& tables, const FigureChoice& choice, Bytes counted) {
  FigureChoice of_items = choice;
  of_items.trace.clear();  // means are over items
  std::vector<std::string> known;
  for (const Metric& each : answer_metrics()) known.emplace_back(each.key);
  std::vector<Study> out;
  for (const AnswersAtCut& answers : answers_at_cuts(tables, choice)) {
    const Metric& metric = choice.metric.empty()
                               ? answers.leading()
                               : answer_metric(known_name(choice.metric, known, "--metric"));
    const std::vector<std::size_t> rows = answers.view.rows("all", of_items);
    if (counted == Bytes::read && !selects(answers.view, rows)) continue;
    Study study = study_of(answers.view, rows, counted, kAnswered, metric);
    if (study.spots.empty()) continue;
    study.cut = answers.cut;
    study.named = NamedPolicies(answers.view, metric, choice).labels;
    out.push_back(std::move(study));
  }
  return out;
}

/// A panel for each study whose metric is that of the first, which then is the choice.
void add_panels(Figure& figure, const std::vector<Study>& studies, const std::vector<std::string>& named,
                FigureChoice& choice,
                Chart (*chart_of)(const Study& study, const std::vector<std::string>& named)) {
  figure.columns = 2;
  for (const Study& study : studies) {
    if (study.metric != studies.front().metric) continue;
    Chart chart = chart_of(study, named);
    if (!chart.series.empty())
      figure.panels.push_back({short_meaning(study.cut), std::move(chart), study.cut});
  }
  choice.metric = studies.front().metric->key;
}

Chart front_chart(const Study& study, const std::vector<std::string>& /*named*/) {
  const std::vector<Spot> front = front_of(study.spots, *study.metric);
  Chart chart{.x = {.label = study.axis, .log = true}, .y = metric_axis(*study.metric)};
  Series line{.label = "front", .weight = Weight::bound, .group = "front: nothing is better in both"};
  for (const Spot& spot : front) line.points.push_back({spot.kib, spot.value, {}, {}});
  std::map<std::string, Series> off_front, on_front;
  for (const Spot& spot : study.spots) {
    const bool best = std::ranges::any_of(
        front, [&](const Spot& each) { return each.policy == spot.policy && each.budget == spot.budget; });
    Series& series = (best ? on_front : off_front)[spot.policy];
    series.label = spot.policy;
    series.dots = true;
    series.points.push_back({spot.kib, spot.value, {}, {}});
  }
  add_curves(chart, off_front, {}, "other policies and budgets");
  chart.series.push_back(std::move(line));
  for (const Spot& spot : front)
    if (auto found = on_front.extract(spot.policy)) {
      found.mapped().policy = spot.policy;
      chart.series.push_back(std::move(found.mapped()));
    }
  return chart;
}

/// What a policy costs to hold, or to read at each step, and which ones nothing beats in both.
std::vector<Figure> pareto(const std::vector<Study>& studies, Bytes counted, FigureChoice& choice) {
  if (studies.empty()) return {};
  std::vector<std::vector<std::string>> wanted;
  for (const Study& study : studies) wanted.push_back(study.named);
  const Metric& metric = *studies.front().metric;
  Figure figure{.title = capitalised(metric.label) + " against the bytes " +
                         (counted == Bytes::read ? "read per step" : "held") + ", every policy and budget",
                .reading = std::string("A dot is a policy at a budget; ") +
                           (metric.better == Better::lower ? "lower" : "higher") +
                           " and further left is better. Named are the policies on the front: nothing is "
                           "better in one and as good in the other."};
  add_panels(figure, studies, studies.size() == 1 ? wanted.front() : names_in_turns(wanted), choice,
             front_chart);
  return {std::move(figure)};
}

/// "less attention loss per further KiB".
std::string gain_label(const Metric& metric) {
  return (metric.better == Better::lower ? "less " : "more ") + std::string(metric.label) +
         " per further KiB";
}

/// Gains along the front of each method: what it gives for its bytes, whatever its budget and settings.
Chart gains_chart(const Study& study, const std::vector<std::string>& named) {
  // Gains below this share of the largest are left out: they would take most of a logarithmic axis.
  constexpr double kLeastGain = 1e-4;
  const Metric& metric = *study.metric;
  Chart chart{.x = {.label = study.axis, .log = true},
              .y = {.label = gain_label(metric), .log = true, .percent = metric.percent}};
  std::vector<std::string> families;
  for (const Spot& spot : study.spots) add_once(families, spot.family);
  double most = 0;
  for (const std::string& family : families) {
    Series& series = series_named(chart, family);
    series.policy = family;
    if (place_in(named, family) < 0) {
      series.group = "other methods";
      series.weight = Weight::faint;
    }
    std::vector<Spot> own = study.spots;
    std::erase_if(own, [&](const Spot& spot) { return spot.family != family; });
    const std::vector<Spot> front = front_of(std::move(own), metric);
    for (std::size_t i = 1; i < front.size(); ++i) {
      const double gain = std::fabs(front[i].value - front[i - 1].value) / (front[i].kib - front[i - 1].kib);
      most = std::max(most, gain);
      // A gain holds from one spot to the next.
      series.points.push_back({front[i - 1].kib, gain, {}, {}});
      series.points.push_back({front[i].kib, gain, {}, {}});
    }
  }
  for (Series& series : chart.series)
    std::erase_if(series.points, [&](const Point& point) { return point.y < kLeastGain * most; });
  std::erase_if(chart.series, [](const Series& series) { return series.points.empty(); });
  return chart;
}

/// Methods with a name, of which the first few get it: the ones asked for, else first those that have a place
/// on the front of all.
std::vector<std::string> named_families(const Study& study, const FigureChoice& choice) {
  std::vector<std::string> out;
  if (choice.policies.empty())
    for (const Spot& spot : front_of(study.spots, *study.metric)) add_once(out, spot.family);
  for (const Spot& spot : study.spots)
    if (choice.wants(spot.policy)) add_once(out, spot.family);
  return out;
}

/// How much a metric gains per further KiB, method by method.
std::vector<Figure> next_byte(const std::vector<Study>& studies, Bytes, FigureChoice& choice) {
  if (studies.empty()) return {};
  std::vector<std::vector<std::string>> wanted;
  for (const Study& study : studies) wanted.push_back(named_families(study, choice));
  Figure figure{.title = "What the next byte buys: " + gain_label(*studies.front().metric),
                .reading =
                    "A method's curve goes along the best that its budgets and settings give for their "
                    "bytes. At one place of the axis the highest curve is the method that gains most from a "
                    "further byte; a method whose curve ends has nothing more to buy. Gains below a "
                    "ten-thousandth of the largest are left out."};
  add_panels(figure, studies, names_in_turns(wanted), choice, gains_chart);
  if (figure.panels.empty()) return {};
  return {std::move(figure)};
}

/// A figure of bytes of results; of answers where it has a table of them.
FigureKind bytes_figure(const char* name, const char* summary, const std::string& needs, Bytes counted,
                        std::vector<Figure> (*draw)(const std::vector<Study>&, Bytes, FigureChoice&),
                        const DataKeys& data, const char* table = "") {
  const bool answers = *table != '\0';
  return {.name = name,
          .summary = summary,
          .needs = needs,
          .draw =
              [draw, counted, answers](const FigureTables& tables, FigureChoice& choice) {
                return draw(answers ? answered(tables, choice, counted) : replayed(tables, choice, counted),
                            counted, choice);
              },
          .table = table,
          .data = data};
}

/// "full+quest(page=4)" of "full+quest(read=10%,page=4)": what a sweep of `read=` has in common.
std::string method_of(std::string label) {
  for (const std::string start : {",read=", "(read="})
    for (std::size_t at = label.find(start); at != std::string::npos; at = label.find(start, at)) {
      const std::size_t end = label.find_first_of(",)", at + 1);
      if (start.front() == ',')
        label.erase(at, end - at);
      else if (label[end] == ')')
        label.erase(at, end + 1 - at);  // nothing else is in the parentheses
      else
        label.erase(at + 1, end - at);
    }
  return label;
}

/// A selection with one setting of `read=`.
struct Reader {
  std::string method;
  double tokens = 0, kib = 0, value = 0;
};

/// Of which the first few get a colour: the ones asked for, else those in order of their best value.
std::vector<std::string> methods_of(std::vector<Reader> readers, const Metric& metric,
                                    const FigureChoice& choice) {
  std::vector<std::string> out;
  for (const std::string& label : choice.policies) add_once(out, method_of(label));
  if (!choice.policies.empty()) return out;
  std::ranges::stable_sort(
      readers, [&](const Reader& a, const Reader& b) { return metric.prefers(a.value, b.value); });
  for (const Reader& reader : readers) add_once(out, reader.method);
  return out;
}

/// 1, 2 and 5 times powers of ten: of few decades no room is left for more, and powers alone are too few.
std::vector<double> ticks_between(double low, double high) {
  std::vector<double> out;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0})
      if (const double at = factor * power; at >= low && at <= high) out.push_back(at);
  return out;
}

Chart recall_chart(const std::vector<Reader>& readers, double Reader::*size, const std::string& label,
                   const Metric& metric, std::vector<std::string> named) {
  Chart chart{.x = {.label = label, .log = true}, .y = metric_axis(metric)};
  if (metric.percent) chart.y.low = 0;
  std::map<std::string, Series> curves;
  for (const Reader& reader : readers) {
    curves[reader.method].label = reader.method;
    curves[reader.method].points.push_back({reader.*size, reader.value, {}, {}});
  }
  for (auto& [method, series] : curves) sort_points(series);
  const auto [least, most] = std::ranges::minmax_element(
      readers, [&](const Reader& a, const Reader& b) { return a.*size < b.*size; });
  chart.x.ticks = ticks_between((*least).*size, (*most).*size);
  std::erase_if(named, [&](const std::string& method) { return !curves.contains(method); });
  add_curves(chart, curves, named, "other methods");
  return chart;
}

/// Recall of the tokens with the most attention against tokens and bytes, a curve per method.
std::vector<Figure> recall(const FigureTables& tables, FigureChoice& choice) {
  const ResultsView view(tables.results);
  if (view.rows("all", choice).empty()) return {};
  for (const std::string& label : choice.policies) view.policy(label);
  const std::vector<std::size_t> at_it = view.rows_at_one_budget("all", choice);
  if (choice.metric.empty()) choice.metric = "read_recall";
  const Metric& metric = analysis::metric(choice.metric);
  const std::vector<std::size_t> rows = view.rows_with(at_it, view.metric(metric.key));
  const auto tokens = view.means(rows, view.metric("read_tokens")),
             bytes = view.means(rows, view.metric("read_bytes")),
             found = view.means(rows, view.metric("read_recall")),
             values = view.means(rows, view.metric(metric.key));
  std::vector<Reader> readers;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (tokens[i] && bytes[i] && found[i] && values[i] && view.policies()[i].compared())
      readers.push_back({method_of(view.policies()[i].label), *tokens[i], *bytes[i] / 1024, *values[i]});
  if (readers.empty()) return {};
  const std::vector<std::string> named = names_in_turns({methods_of(readers, metric, choice)});
  Figure figure{.title = capitalised(metric.label) + " against what is read, " + at_budget(choice.budget) +
                         ", " + traces_text(view.traces(rows), choice.workload),
                .reading =
                    "A curve is a selection, each of its points a setting of read=; other settings are other "
                    "curves. Left is what it finds of as many tokens, right what that takes with all query "
                    "heads and its index.",
                .columns = 2};
  figure.panels.push_back(
      {"", recall_chart(readers, &Reader::tokens, "tokens read by a query head", metric, named), "tokens"});
  figure.panels.push_back(
      {"", recall_chart(readers, &Reader::kib, "KiB read per step, index included", metric, named), "bytes"});
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> byte_figures() {
  const DataKeys held{.panel = "cut", .series = "policy", .x = "kept_kib"},
      read{.panel = "cut", .series = "policy", .x = "read_kib"},
      gains{.panel = "cut", .series = "method", .x = "kib", .y = "gain_per_kib"};
  const std::string answers = "rows of kvsim evaluate, or the folder of a study with the closed loop",
                    part = " in which a policy reads a part of what it stores, such as full+quest";
  return {
      bytes_figure("pareto", "bytes held against a metric, and the policies nothing beats in both",
                   "results of scope all", Bytes::held, pareto, held),
      bytes_figure("pareto-answers", "bytes held against right answers, or --metric kl or same_top", answers,
                   Bytes::held, pareto, held, kAnswersTable),
      bytes_figure("read-pareto",
                   "bytes read per step against a metric, and the policies nothing beats in both",
                   "results of scope all" + part, Bytes::read, pareto, read),
      bytes_figure("read-pareto-answers",
                   "bytes read per step against right answers, or --metric kl or same_top",
                   answers + "," + part, Bytes::read, pareto, read, kAnswersTable),
      {.name = "recall",
       .summary =
           "recall of the top tokens, or --metric, against tokens and bytes read, a curve per selection",
       .needs = "results of scope all" + part + "; several settings of read= make a curve",
       .draw = recall,
       .data = {.panel = "size", .series = "method", .x = "read"}},
      bytes_figure("next-byte", "what a metric gains per further KiB held, a curve per method",
                   "results of scope all with several budgets or settings", Bytes::held, next_byte, gains),
      bytes_figure("next-byte-answers", "the same of right answers, or --metric kl or same_top", answers,
                   Bytes::held, next_byte, gains, kAnswersTable)};
}

}  // namespace kvsim::analysis
