#include "analysis/figures/layer_tables.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim::analysis {

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
  for (const std::vector<Value>& row : table.rows) {
    const std::optional<double> value = number(row[column]);
    if (value) parts.try_emplace(*value, Records{table.columns, {}}).first->second.rows.push_back(row);
  }
  return parts;
}

Gathered gather(const Records& table, std::string_view x, std::string_view y) {
  Gathered out;
  if (table.rows.empty()) return out;
  const std::size_t at_x = table.column(x), at_y = table.column(y);
  for (const std::vector<Value>& row : table.rows) {
    const std::optional<double> to = number(row[at_x]), value = number(row[at_y]);
    if (to && value) out[*to].push_back(*value);
  }
  return out;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<Point> spread_over_traces(const Gathered& values) {
  std::vector<Point> points;
  for (const auto& [x, all] : values) {
    Point& point = points.emplace_back(Point{x, mean_of(all), {}, {}});
    if (all.size() < 2) continue;
    point.low = *std::min_element(all.begin(), all.end());
    point.high = *std::max_element(all.begin(), all.end());
  }
  return points;
}

Axis layer_axis(std::size_t n) {
  constexpr std::size_t kNamed = 12;
  Axis axis;
  axis.label = "layer";
  if (n <= kNamed)
    for (std::size_t layer = 0; layer < n; ++layer) axis.categories.push_back(std::to_string(layer));
  return axis;
}

}  // namespace kvsim::analysis
