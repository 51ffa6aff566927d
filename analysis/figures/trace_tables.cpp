#include "analysis/figures/trace_tables.hpp"

#include <algorithm>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostTracesNamed = 3;

std::vector<std::size_t> columns_of(const Records& records, const std::vector<std::string>& keys) {
  std::vector<std::size_t> out;
  for (const std::string& key : keys) out.push_back(records.column(key));
  return out;
}

Axis numbered(const std::string& label, std::size_t n) {
  Axis axis{.label = label};
  for (std::size_t i = 0; i < n; ++i) axis.categories.push_back(std::to_string(i));
  return axis;
}

}  // namespace

FigureKind table_figure(const char* name, const char* summary,
                        const std::function<std::vector<Figure>(const Records& table)>& draw) {
  return {.name = name,
          .summary = summary,
          .needs = std::string("the table of kvsim analyze ") + name,
          .draw =
              [name, draw](const FigureTables& tables, const FigureChoice&) {
                const Records* table = tables.find(name);
                std::vector<Figure> figures = table == nullptr ? std::vector<Figure>() : draw(*table);
                for (Figure& figure : figures) figure.command = analyze_command(name, *table);
                return figures;
              },
          .table = name};
}

FigureKind lane_figure(const char* name, const char* summary, const LaneMaps& maps) {
  return table_figure(name, summary, [maps](const Records& table) {
    Figure figure{.title = maps.title, .reading = maps.reading};
    std::vector<std::string> all, counted;
    for (const LaneMaps::Column& column : maps.columns) {
      all.emplace_back(column.key);
      if (column.counted) counted.emplace_back(column.key);
    }
    figure.remark = means_remark(table, counted);
    figure.data = trace_means(table, {"layer", "head"}, all);
    for (const LaneMaps::Column& column : maps.columns) {
      HeatMap map = lane_map(figure.data, column.key, maps.heads, maps.unit);
      map.percent = maps.percent;
      map.diverging = maps.diverging;
      map.numbers = maps.numbers;
      figure.panels.push_back({column.title, std::move(map)});
    }
    return std::vector{figure};
  });
}

HeatMap lane_map(const Records& means, const std::string& value, const std::string& heads_label,
                 const std::string& unit) {
  const std::size_t layers = means.column("layer"), heads = means.column("head"), at = means.column(value);
  const auto index = [](const Value& field) { return static_cast<std::size_t>(number(field).value_or(0)); };
  std::size_t most = 0;
  for (const std::vector<Value>& row : means.rows) most = std::max(most, index(row[heads]) + 1);
  HeatMap map{.x = numbered(heads_label, most), .unit = unit, .numbers = true};
  for (const std::vector<Value>& row : means.rows) {
    const std::size_t layer = index(row[layers]);
    if (map.rows.size() <= layer) map.rows.resize(layer + 1, std::vector<std::optional<double>>(most));
    map.rows[layer][index(row[heads])] = number(row[at]);
  }
  map.y = numbered("layer", map.rows.size());
  return map;
}

std::vector<Records> split_by(const Records& table, std::string_view key) {
  std::vector<Records> parts;
  if (table.rows.empty()) return parts;
  const std::size_t column = table.column(key);
  std::map<std::string, std::size_t> place;
  for (const std::vector<Value>& row : table.rows) {
    const auto [found, fresh] = place.emplace(text(row[column]), parts.size());
    if (fresh) parts.push_back({table.columns, {}});
    parts[found->second].rows.push_back(row);
  }
  return parts;
}

std::map<double, Records> split_by_number(const Records& table, std::string_view key) {
  std::map<double, Records> parts;
  if (table.rows.empty()) return parts;
  const std::size_t column = table.column(key);
  for (const std::vector<Value>& row : table.rows)
    if (const auto value = number(row[column]))
      parts.try_emplace(*value, Records{table.columns, {}}).first->second.rows.push_back(row);
  return parts;
}

Records trace_means(const Records& records, const std::vector<std::string>& by,
                    const std::vector<std::string>& values) {
  const std::vector<std::size_t> keys = columns_of(records, by), sources = columns_of(records, values);
  Records out;
  for (const std::size_t column : keys) out.columns.push_back(records.columns[column]);
  for (const std::size_t column : sources) out.columns.push_back(records.columns[column]);
  std::map<std::vector<Value>, std::size_t> known;
  std::vector<std::vector<RunningMean>> means;
  for (const std::vector<Value>& row : records.rows) {
    std::vector<Value> name;
    for (const std::size_t column : keys) name.push_back(row[column]);
    const auto [found, fresh] = known.try_emplace(name, means.size());
    if (fresh) {
      means.emplace_back(sources.size());
      out.rows.push_back(std::move(name));
    }
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (const auto value = number(row[sources[i]])) means[found->second][i].add(*value);
  }
  for (std::size_t row = 0; row < means.size(); ++row)
    for (const RunningMean& mean : means[row]) out.rows[row].push_back(value_of(mean.value()));
  return out;
}

std::string means_remark(const Records& records, const std::vector<std::string>& values) {
  std::uint64_t missing = 0;
  for (const std::size_t column : columns_of(records, values))
    for (const std::vector<Value>& row : records.rows) missing += number(row[column]) ? 0 : 1;
  const std::size_t traces = distinct(records, "trace").size();
  std::string out = traces > 1 ? capitalised(traces_text(traces)) + '.' : "";
  if (missing > 0)
    add_sentence(out, std::to_string(missing) + (missing == 1 ? " value is undefined and left out."
                                                              : " values are undefined and left out."));
  return out;
}

std::string analyze_command(const std::string& kind, const Records& records) {
  const std::vector<std::string> names = distinct(records, "trace");
  const bool few = names.size() <= kMostTracesNamed;
  return "kvsim analyze " + kind + ' ' + (few ? shell_words(names) : "TRACE...") + " --format csv";
}

}  // namespace kvsim::analysis
