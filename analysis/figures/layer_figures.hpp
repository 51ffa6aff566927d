#pragma once
/// Figures of what layers look at and what allocations give them, after XKV (arXiv 2412.05896, Fig. 2, 3, 4
/// and 10). Each is made of tables of kvsim analyze, columns as analysis/results/METRICS.md has them, and is
/// nothing when its table is empty or has no number to show. Where several traces are shown as one, that is a
/// mean over traces, and `remark` or the legend says over which.
#include <optional>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

/// Table "importance": layers down, spans of positions across.
std::optional<Figure> importance_map(const Records& importance);
/// Table "retention": R(n), ISR(n) and its slope by n, a curve per layer; with many layers, some are named.
std::optional<Figure> retention_curves(const Records& retention);
/// Tables "retention-size" and "retention", either of which may be empty: what layers need for the same R,
/// and which R they have of the same n.
std::optional<Figure> retention_by_layer(const Records& sizes, const Records& retention);
/// Table "allocation": tokens by layer, a panel per policy, a line per trace.
std::optional<Figure> allocation_by_layer(const Records& allocation);

}  // namespace kvsim::analysis
