#include <algorithm>

#include "analysis/figures/layer_figures.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

/// One trace, or the mean of several.
struct Map {
  std::vector<std::vector<std::optional<double>>> shares{};  ///< [layer][span]
  std::vector<double> first{}, last{};                       ///< [span]
};

Map map_of(const Records& trace) {
  Map map;
  const std::size_t layer = trace.column("layer"), first = trace.column("first"), last = trace.column("last"),
                    share = trace.column("share");
  for (const std::vector<Value>& row : trace.rows) {
    const auto at = static_cast<std::size_t>(number(row[layer]).value_or(0));
    if (at >= map.shares.size()) map.shares.resize(at + 1);
    map.shares[at].push_back(number(row[share]));
    if (at > 0) continue;
    map.first.push_back(number(row[first]).value_or(0));
    map.last.push_back(number(row[last]).value_or(0));
  }
  return map;
}

/// Whether all layers have the same spans, and at least one: others may have edited the table.
bool whole(const Map& map) {
  return !map.first.empty() && std::all_of(map.shares.begin(), map.shares.end(), [&](const auto& layer) {
    return layer.size() == map.first.size();
  });
}

/// As many layers and spans, lengths within a tenth: spans of equal number are about the same positions.
bool comparable(const Map& a, const Map& b) {
  const auto [low, high] = std::minmax(a.last.back(), b.last.back());
  return a.shares.size() == b.shares.size() && a.first.size() == b.first.size() && high <= 1.1 * low;
}

/// Undefined where it is in any.
Map mean_of(const std::vector<Map>& maps) {
  Map mean = maps[0];
  for (std::size_t layer = 0; layer < mean.shares.size(); ++layer)
    for (std::size_t span = 0; span < mean.shares[layer].size(); ++span) {
      std::optional<double>& out = mean.shares[layer][span];
      out = 0.0;
      for (const Map& map : maps) {
        const std::optional<double> share = map.shares[layer][span];
        out = out && share ? std::optional(*out + *share / static_cast<double>(maps.size())) : std::nullopt;
      }
    }
  return mean;
}

Records data_of(const Map& map) {
  Records data{{{"layer", "", "layer"},
                {"first", "", "first position of the span"},
                {"last", "", "its last position"},
                {"share", "", "of the layer's importance, mean over traces"}},
               {}};
  for (std::size_t layer = 0; layer < map.shares.size(); ++layer)
    for (std::size_t span = 0; span < map.shares[layer].size(); ++span)
      data.rows.push_back(
          {std::uint64_t{layer}, map.first[span], map.last[span], value_of(map.shares[layer][span])});
  return data;
}

}  // namespace

std::optional<Figure> importance_map(const Records& importance) {
  std::vector<Map> maps;
  for (const Records& trace : split_by(importance, "trace")) maps.push_back(map_of(trace));
  std::erase_if(maps, [](const Map& map) { return !whole(map); });
  if (maps.empty()) return {};
  const bool all =
      std::all_of(maps.begin(), maps.end(), [&](const Map& map) { return comparable(maps[0], map); });
  const Map shown = all ? mean_of(maps) : maps[0];

  Figure figure;
  figure.name = "importance-map";
  figure.title = "Where in the prompt each layer's importance lies, " + traces_text(all ? maps.size() : 1);
  figure.reading =
      "A row is a layer and its spans sum to 100 %: importance that gathers in few spans is cheap to keep, "
      "an even row is not.";
  if (!all)
    figure.remark = "The first of " + std::to_string(maps.size()) +
                    " traces: they differ in length or model, so that positions have no common mean.";
  figure.command = analyze_command("importance", importance);
  HeatMap map;
  map.x.label = "position in the prompt (token)";
  map.x.low = (shown.first.front() + shown.last.front()) / 2;
  map.x.high = (shown.first.back() + shown.last.back()) / 2;
  map.y = layer_axis(shown.shares.size());
  map.unit = "share of layer";
  map.rows = shown.shares;
  map.log = true;
  figure.panels.push_back({"", std::move(map)});
  figure.data = data_of(shown);
  return figure;
}

}  // namespace kvsim::analysis
