// Figures of one table of kvsim analyze, by name.
#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/layer_figures.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> one(std::optional<Figure> figure) {
  std::vector<Figure> out;
  if (figure) out.push_back(std::move(*figure));
  return out;
}

/// An empty table where there is none: such figures look for rows.
const Records& table_of(const FigureTables& tables, const char* name) {
  static const Records kNone;
  const Records* found = tables.find(name);
  return found == nullptr ? kNone : *found;
}

}  // namespace

// A figure of the table its kind of analysis makes, by whose name it is called.
#define KVSIM_TABLE_FIGURE(function, kind, draw, summary)                                                  \
  FigureKind function() {                                                                                  \
    return {                                                                                               \
        kind, summary, "the table of kvsim analyze " kind,                                                 \
        [](const FigureTables& tables, const FigureChoice&) { return one(draw(table_of(tables, kind))); }, \
        kind};                                                                                             \
  }
KVSIM_TABLE_FIGURE(importance_figure_kind, "importance", importance_map,
                   "importance of positions by layer, a heat map")
KVSIM_TABLE_FIGURE(retention_figure_kind, "retention", retention_curves,
                   "importance retained, per bit, and its slope by tokens kept, a curve per layer")
KVSIM_TABLE_FIGURE(allocation_figure_kind, "allocation", allocation_by_layer,
                   "tokens by layer as policies allot them, a line per trace")
KVSIM_TABLE_FIGURE(hash_figure_kind, "hash", hash_figure,
                   "correlation of attention and Hamming similarity, by bits")
KVSIM_TABLE_FIGURE(cumulative_loss_figure_kind, "cumulative-loss", cumulative_loss_figure,
                   "attention lost by dropping positions in the order of a ranking")
KVSIM_TABLE_FIGURE(ranking_loss_figure_kind, "ranking-loss", ranking_loss_figure,
                   "how far rankings of positions are from the best order")
KVSIM_TABLE_FIGURE(persistence_figure_kind, "persistence", persistence_figure,
                   "persistence of importance by layer and KV head")
KVSIM_TABLE_FIGURE(heads_figure_kind, "heads", heads_figure,
                   "where query heads look: sinks, locality, entropy")
KVSIM_TABLE_FIGURE(key_norms_figure_kind, "key-norms", key_norms_figure,
                   "correlation of key norm and attention by layer and KV head")
#undef KVSIM_TABLE_FIGURE

FigureKind retention_layers_figure_kind() {
  return {"retention-layers", "what each layer needs to retain as much, and retains of as many tokens",
          "the table of kvsim analyze retention-size, or of retention",
          [](const FigureTables& tables, const FigureChoice&) {
            return one(retention_by_layer(table_of(tables, "retention-size"), table_of(tables, "retention")));
          },
          "retention-size"};
}

}  // namespace kvsim::analysis
