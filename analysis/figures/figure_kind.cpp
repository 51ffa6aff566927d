#include "analysis/figures/figure_kind.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/results/cell_columns.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

// Figures by subject, each list in the file of its name.
std::vector<FigureKind> answer_figures(), least_figures(), drift_figures(), quality_figures(),
    comparison_figures(), byte_figures(), agreement_figures(), part_figures(), layer_figures(), key_figures(),
    cost_bars(), cost_curves(), request_figures();

namespace {

Value place(const Axis& axis, double at) {
  if (axis.categories.empty()) return at;
  return axis.categories[static_cast<std::size_t>(at)];
}

Value defined(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Value(*value) : Value();
}

const std::string& name_of(const Panel& panel) {
  return panel.key.empty() ? panel.title : panel.key;
}

Value cell(const Axis& axis, std::size_t i, std::size_t count) {
  if (!axis.categories.empty()) return axis.categories[i];
  if (!axis.low || !axis.high || count < 2) return axis.low.value_or(0) + static_cast<double>(i);
  return *axis.low + static_cast<double>(i) * (*axis.high - *axis.low) / static_cast<double>(count - 1);
}

/// All columns that the content of a panel may have; those without a key are not shown.
Records data_of(const Panel& panel, const Chart& chart, const DataKeys& keys) {
  Records out{{{keys.panel, "", "part of the figure"},
               {keys.series, "", "curve"},
               {keys.x, "", chart.x.label},
               {keys.y, "", chart.y.label},
               {"low", "", "lower end of the interval"},
               {"high", "", "upper end of the interval"}},
              {}};
  for (const Series& series : chart.series)
    for (const Point& point : series.points)
      out.rows.push_back({name_of(panel), series.label, place(chart.x, point.x), defined(point.y),
                          defined(point.low), defined(point.high)});
  return out;
}

Records data_of(const Panel& panel, const HeatMap& map, const DataKeys& keys) {
  Records out{{{keys.panel, "", "part of the figure"},
               {keys.y, "", map.y.label},
               {keys.x, "", map.x.label},
               {keys.value, "", map.unit}},
              {}};
  for (std::size_t y = 0; y < map.rows.size(); ++y)
    for (std::size_t x = 0; x < map.rows[y].size(); ++x)
      out.rows.push_back({name_of(panel), cell(map.y, y, map.rows.size()), cell(map.x, x, map.rows[y].size()),
                          defined(map.rows[y][x])});
  return out;
}

Records data_of(const Panel& panel, const Timeline& timeline, const DataKeys& keys) {
  Records out{{{keys.panel, "", "part of the figure"},
               {keys.series, "", "what the colour means"},
               {keys.y, "", timeline.y.label + ": lowest"},
               {"count", "", timeline.y.label + ": so many, one after the other"},
               {"begin", "", timeline.x.label + ", first"},
               {"end", "", timeline.x.label + ", first no longer"}},
              {}};
  for (const Timeline::Bar& bar : timeline.bars)
    out.rows.push_back(
        {name_of(panel), timeline.colours[static_cast<std::size_t>(bar.colour)],
         timeline.y.categories.empty() ? Value(bar.y - (bar.height - 1) / 2) : place(timeline.y, bar.y),
         bar.height, bar.begin, bar.end});
  return out;
}

/// The columns of a key, and their fields in every row.
void keep_named_columns(Records& table) {
  for (std::size_t i = table.columns.size(); i-- > 0;) {
    if (!table.columns[i].key.empty()) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    table.columns.erase(table.columns.begin() + at);
    for (std::vector<Value>& row : table.rows) row.erase(row.begin() + at);
  }
}

}  // namespace

const Records* FigureTables::find(const std::string& name) const {
  const auto found = tables.find(name);
  return found == tables.end() || found->second.rows.empty() ? nullptr : &found->second;
}

bool FigureChoice::wants(const std::string& policy) const {
  return policies.empty() || std::ranges::find(policies, policy) != policies.end();
}

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kAll = [] {
    std::vector<FigureKind> all;
    for (const auto list : {answer_figures, least_figures, drift_figures, quality_figures, comparison_figures,
                            byte_figures, agreement_figures, part_figures, layer_figures, key_figures,
                            cost_bars, cost_curves, request_figures})
      for (FigureKind& kind : list()) all.push_back(std::move(kind));
    return all;
  }();
  return kAll;
}

const FigureKind& figure_kind(std::string_view name) {
  std::vector<std::string> known;
  for (const FigureKind& kind : figure_kinds()) {
    if (name == kind.name) return kind;
    known.emplace_back(kind.name);
  }
  usage_error("unknown figure '" + std::string(name) + "'", "", suggestion(name, known));
}

std::vector<Figure> FigureKind::build(const FigureTables& tables, const FigureChoice& asked) const {
  FigureChoice choice = asked;
  std::vector<Figure> figures = draw(tables, choice);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    Figure& figure = figures[i];
    if (figure.name.empty()) figure.name = i == 0 ? name : name + ('-' + std::to_string(i + 1));
    if (figure.command.empty()) figure.command = plot_command(name, tables, choice);
    if (!figure.data.columns.empty()) continue;
    DataKeys keys = data;
    if (keys.panel == "cut" && figure.panels.size() == 1) keys.panel.clear();
    if (keys.y.empty()) keys.y = choice.metric;
    if (keys.value.empty()) keys.value = choice.metric;
    figure.data = figure_data(figure, keys);
  }
  return figures;
}

FigureTables tables_at(const FigureTables& tables, const std::string& cut) {
  FigureTables out{at_cut(tables.results, cut), {}, tables.decisions, tables.source};
  for (const auto& [name, table] : tables.tables) out.tables.emplace(name, at_cut(table, cut));
  return out;
}

std::vector<Figure> figures_of(const FigureKind& kind, const FigureTables& tables,
                               const FigureChoice& choice) {
  const std::vector<std::string> cuts = cuts_of(tables.results);
  std::vector<std::string> known = cuts;
  if (*kind.table != '\0')
    if (const Records* table = tables.find(kind.table)) known = cuts_of(*table);
  if (!choice.cut.empty()) known_name(choice.cut, known, "--cut");
  if (kind.compares_cuts || *kind.table != '\0' || cuts.empty()) return kind.build(tables, choice);
  FigureChoice made = choice;
  if (cuts.size() > 1 && made.cut.empty()) made.cut = cuts.front();
  const std::string& cut = made.cut.empty() ? cuts.front() : made.cut;
  std::vector<Figure> figures =
      cuts.size() > 1 ? kind.build(tables_at(tables, cut), made) : kind.build(tables, made);
  for (Figure& figure : figures) {
    if (!cut.empty()) figure.title += "; " + cut_title(cut);
    if (!cut.empty() && cut != "prompt") figure.name += "-cut-" + cut;
  }
  return figures;
}

Records figure_data(const Figure& figure, const DataKeys& keys) {
  Records out;
  for (const Panel& panel : figure.panels) {
    Records part =
        std::visit([&](const auto& content) { return data_of(panel, content, keys); }, panel.content);
    keep_named_columns(part);
    if (out.columns.empty()) out.columns = std::move(part.columns);
    for (std::vector<Value>& row : part.rows) out.rows.push_back(std::move(row));
  }
  return out;
}

std::string plot_command(const std::string& name, const FigureTables& tables, const FigureChoice& choice) {
  std::string out = "kvsim plot " + name + ' ' + shell_word(tables.source);
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) out += std::string(" --") + option + ' ' + shell_word(value);
  };
  add("metric", choice.metric);
  add("cut", choice.cut);
  add("budget", choice.budget);
  add("workload", choice.workload);
  add("trace", choice.trace);
  for (const std::string& policy : choice.policies) add("policy", policy);
  if (choice.layer) add("layer", std::to_string(*choice.layer));
  if (choice.head) add("head", std::to_string(*choice.head));
  if (choice.gap) out += " --gap";
  return out;
}

const std::string& known_name(const std::string& wanted, const std::vector<std::string>& known,
                              const std::string& option) {
  if (std::ranges::find(known, wanted) == known.end())
    usage_error("nothing of that name in these results: '" + wanted + "'", option, suggestion(wanted, known));
  return wanted;
}

}  // namespace kvsim::analysis
