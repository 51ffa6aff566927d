#pragma once
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"

namespace kvsim::analysis {

/// What a figure may be made of, from the folder of a study, result files (several are joined: say one per
/// scope), the table of an analysis, or decisions. Statistics that the figure needs and no file holds are
/// made of the results. Throws Error(input) when a file is none of these, or damaged;
/// Error(usage) for answers of several protocols.
FigureTables figure_tables(const FigureKind& kind, const std::vector<std::string>& files);

}  // namespace kvsim::analysis
