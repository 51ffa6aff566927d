#pragma once
/// Figures of what traces show about keys and attention: each takes the table of a kind of analysis, of one
/// trace or of several, and shows means over traces. Nothing for a table without rows.
#include <optional>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

std::optional<Figure> cumulative_loss_figure(const Records& cumulative_loss);
std::optional<Figure> ranking_loss_figure(const Records& ranking_loss);
std::optional<Figure> hash_figure(const Records& hash);
std::optional<Figure> persistence_figure(const Records& persistence);
std::optional<Figure> heads_figure(const Records& heads);
std::optional<Figure> key_norms_figure(const Records& key_norms);

}  // namespace kvsim::analysis
