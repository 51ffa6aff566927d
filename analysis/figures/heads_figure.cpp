// Sinks, locality and entropy: a cell per query head.
#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/lane_map.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {

std::optional<Figure> heads_figure(const Records& heads) {
  if (heads.rows.empty()) return {};
  const std::vector<std::string> keys{"sink", "local", "entropy_share"};
  Figure figure;
  figure.name = "heads";
  figure.title = "Where query heads look";
  figure.reading =
      "Heads bright in the first map live on the first positions, in the second on the last ones, in the "
      "third on all alike: no few positions hold their attention.";
  figure.remark = means_remark(heads, keys);
  figure.command = analyze_command("heads", heads);
  figure.data = trace_means(heads, {"layer", "head"}, keys);
  const char* const titles[] = {"attention on first positions", "attention on last positions",
                                "entropy / largest entropy"};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    HeatMap map = lane_map(figure.data, keys[i], "query head", "share");
    map.percent = true;
    map.numbers = false;  // too many heads for some of the maps to have room
    figure.panels.push_back({titles[i], std::move(map)});
  }
  return figure;
}

}  // namespace kvsim::analysis
