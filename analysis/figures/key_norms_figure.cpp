// Key norm against attention: a correlation per lane.
#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/lane_map.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {

std::optional<Figure> key_norms_figure(const Records& key_norms) {
  if (key_norms.rows.empty()) return {};
  Figure figure;
  figure.name = "key-norms";
  figure.title = "Correlation of key norm and attention by layer and KV head";
  figure.reading =
      "Negative cells are lanes whose small keys get the attention, where keeping small keys is right; in "
      "positive ones it is wrong.";
  figure.remark = means_remark(key_norms, {"pearson", "spearman"});
  figure.command = analyze_command("key-norms", key_norms);
  figure.data = trace_means(key_norms, {"layer", "head"}, {"pearson", "spearman"});
  for (const auto& [title, key] :
       {std::pair{"of values (Pearson)", "pearson"}, std::pair{"of ranks (Spearman)", "spearman"}}) {
    HeatMap map = lane_map(figure.data, key, "KV head", "correlation");
    map.diverging = true;
    figure.panels.push_back({title, std::move(map)});
  }
  return figure;
}

}  // namespace kvsim::analysis
