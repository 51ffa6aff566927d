#include "analysis/figures/figure_kind.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/results/cuts.hpp"
#include "sim/base/error.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

// Figures by subject, each list in the file of its name.
std::vector<FigureKind> answer_figures(), drift_figures(), quality_figures(), comparison_figures(),
    byte_figures(), agreement_figures(), part_figures(), layer_figures(), key_figures(), cost_bars(),
    cost_curves(), hit_figures(), reuse_figures();

namespace {

Value place(const Axis& axis, double at) {
  if (axis.categories.empty()) return at;
  return axis.categories[static_cast<std::size_t>(at)];
}

Value defined(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Value(*value) : Value();
}

/// Adds fields whose columns have a name.
class Table {
 public:
  Table(const DataKeys& keys) : keys_(keys) {}

  void add(const Panel& panel, const Chart& chart) {
    name({{keys_.panel, "", "part of the figure"},
          {keys_.series, "", "curve"},
          {keys_.x, "", chart.x.label},
          {keys_.y, "", chart.y.label},
          {"low", "", "lower end of the interval"},
          {"high", "", "upper end of the interval"}});
    for (const Series& series : chart.series)
      for (const Point& point : series.points)
        row({name_of(panel), series.label, place(chart.x, point.x), defined(point.y), defined(point.low),
             defined(point.high)});
  }

  void add(const Panel& panel, const HeatMap& map) {
    name({{keys_.panel, "", "part of the figure"},
          {keys_.y, "", map.y.label},
          {keys_.x, "", map.x.label},
          {keys_.value, "", map.unit}});
    for (std::size_t y = 0; y < map.rows.size(); ++y)
      for (std::size_t x = 0; x < map.rows[y].size(); ++x)
        row({name_of(panel), cell(map.y, y, map.rows.size()), cell(map.x, x, map.rows[y].size()),
             defined(map.rows[y][x])});
  }

  void add(const Panel& panel, const Timeline& timeline) {
    name({{keys_.panel, "", "part of the figure"},
          {keys_.series, "", "what the colour means"},
          {keys_.y, "", timeline.y.label + ": lowest"},
          {"count", "", timeline.y.label + ": so many, one after the other"},
          {"begin", "", timeline.x.label + ", first"},
          {"end", "", timeline.x.label + ", first no longer"}});
    for (const Timeline::Bar& bar : timeline.bars)
      row({name_of(panel), timeline.colours[static_cast<std::size_t>(bar.colour)], lowest(timeline.y, bar),
           bar.height, bar.begin, bar.end});
  }

  Records take() { return std::move(table_); }

 private:
  static Value cell(const Axis& axis, std::size_t i, std::size_t count) {
    if (!axis.categories.empty()) return axis.categories[i];
    if (!axis.low || !axis.high || count < 2) return axis.low.value_or(0) + static_cast<double>(i);
    return *axis.low + static_cast<double>(i) * (*axis.high - *axis.low) / static_cast<double>(count - 1);
  }

  static const std::string& name_of(const Panel& panel) {
    return panel.key.empty() ? panel.title : panel.key;
  }

  static Value lowest(const Axis& axis, const Timeline::Bar& bar) {
    return axis.categories.empty() ? Value(bar.y - (bar.height - 1) / 2) : place(axis, bar.y);
  }

  void name(std::vector<ColumnInfo> columns) {
    shown_.clear();
    std::vector<ColumnInfo> kept;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].key.empty()) continue;
      shown_.push_back(i);
      kept.push_back(std::move(columns[i]));
    }
    if (table_.columns.empty()) table_.columns = std::move(kept);
  }

  void row(const std::vector<Value>& fields) {
    std::vector<Value>& out = table_.rows.emplace_back();
    for (const std::size_t i : shown_) out.push_back(fields[i]);
  }

  const DataKeys& keys_;
  std::vector<std::size_t> shown_{};
  Records table_{};
};

}  // namespace

const Records* FigureTables::find(const std::string& name) const {
  const auto found = tables.find(name);
  return found == tables.end() || found->second.rows.empty() ? nullptr : &found->second;
}

bool FigureChoice::wants(const std::string& policy) const {
  return policies.empty() || std::find(policies.begin(), policies.end(), policy) != policies.end();
}

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kAll = [] {
    std::vector<FigureKind> all;
    for (const auto list :
         {answer_figures, drift_figures, quality_figures, comparison_figures, byte_figures, agreement_figures,
          part_figures, layer_figures, key_figures, cost_bars, cost_curves, hit_figures, reuse_figures})
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
  Table table(keys);
  for (const Panel& panel : figure.panels)
    std::visit([&](const auto& content) { table.add(panel, content); }, panel.content);
  return table.take();
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
  if (std::find(known.begin(), known.end(), wanted) == known.end())
    usage_error("nothing of that name in these results: '" + wanted + "'", option, suggestion(wanted, known));
  return wanted;
}

}  // namespace kvsim::analysis
