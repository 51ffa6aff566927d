#include "analysis/figures/lane_map.hpp"

#include <algorithm>

namespace kvsim::analysis {
namespace {

Axis numbered(const std::string& label, std::size_t n) {
  Axis axis{.label = label};
  for (std::size_t i = 0; i < n; ++i) axis.categories.push_back(std::to_string(i));
  return axis;
}

}  // namespace

HeatMap lane_map(const Records& means, const std::string& value, const std::string& head,
                 const std::string& unit) {
  const std::size_t layers = means.column("layer"), heads = means.column("head"), at = means.column(value);
  const auto index = [](const Value& field) { return static_cast<std::size_t>(number(field).value_or(0)); };
  std::size_t most = 0;
  for (const std::vector<Value>& row : means.rows) most = std::max(most, index(row[heads]) + 1);
  HeatMap map;
  map.x = numbered(head, most);
  map.unit = unit;
  map.numbers = true;
  for (const std::vector<Value>& row : means.rows) {
    const std::size_t layer = index(row[layers]);
    if (map.rows.size() <= layer) map.rows.resize(layer + 1, std::vector<std::optional<double>>(most));
    map.rows[layer][index(row[heads])] = number(row[at]);
  }
  map.y = numbered("layer", map.rows.size());
  return map;
}

}  // namespace kvsim::analysis
