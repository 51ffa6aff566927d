// ALR: how far each ranking is from the best order, a column per lane.
#include <algorithm>
#include <map>

#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

/// Place of `name` in `names`, where it stands from now on.
std::size_t place_of(const std::string& name, std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) names.push_back(name);
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::string lane_name(const Value& layer, const Value& head) {
  const auto whole = [](const Value& field) {
    return std::to_string(static_cast<std::uint64_t>(number(field).value_or(0)));
  };
  return whole(layer) + '.' + whole(head);
}

}  // namespace

std::optional<Figure> ranking_loss_figure(const Records& ranking_loss) {
  if (ranking_loss.rows.empty()) return {};
  Figure figure;
  figure.name = "ranking-loss";
  figure.title = "How far rankings of positions are from the best order (ALR / largest ALR)";
  figure.reading =
      "0 % is a ranking that drops what gets least attention first, 100 % the opposite; a draw by lot has 50 "
      "%.";
  figure.remark = means_remark(ranking_loss, {"alr_share"});
  figure.command = analyze_command("ranking-loss", ranking_loss);
  figure.data = trace_means(ranking_loss, {"ranking", "layer", "head"}, {"alr_share"});
  HeatMap map;
  map.x.label = "layer.KV head";
  map.y.label = "ranking";
  map.unit = "ALR / largest ALR";
  map.percent = map.numbers = true;
  for (const std::vector<Value>& row : figure.data.rows) {
    const std::size_t y = place_of(text(row[0]), map.y.categories),
                      x = place_of(lane_name(row[1], row[2]), map.x.categories);
    map.rows.resize(map.y.categories.size());
    for (auto& cells : map.rows) cells.resize(map.x.categories.size());
    map.rows[y][x] = number(row[3]);
  }
  figure.panels.push_back({"", std::move(map)});
  return figure;
}

}  // namespace kvsim::analysis
