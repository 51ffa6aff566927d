// Does what was important stay important? A cell per lane, beside what chance would give.
#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/lane_map.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {

std::optional<Figure> persistence_figure(const Records& persistence) {
  if (persistence.rows.empty()) return {};
  Figure figure;
  figure.name = "persistence";
  figure.title = "Persistence of importance by layer and KV head";
  figure.reading =
      "Left: how many of the positions that are important late had been important early; only what lies "
      "above the right map, which is what a draw by lot has, is persistence.";
  figure.remark = means_remark(persistence, {"persistence"});
  figure.command = analyze_command("persistence", persistence);
  figure.data = trace_means(persistence, {"layer", "head"}, {"persistence", "chance"});
  for (const auto& [title, key] : {std::pair{"persistence", "persistence"}, std::pair{"by lot", "chance"}}) {
    HeatMap map = lane_map(figure.data, key, "KV head", "share");
    map.percent = true;
    figure.panels.push_back({title, std::move(map)});
  }
  return figure;
}

}  // namespace kvsim::analysis
