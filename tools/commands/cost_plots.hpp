#pragma once
#include <string>

#include "analysis/results/records.hpp"

namespace kvsim::tools {

/// Throws Error(usage) for a picture of another kind than .svg, .png and .pdf, and for a file that exists
/// unless `overwrite`.
void check_plot_place(const std::string& place, bool overwrite);

/// Draws rows of costs. `place` ends in .svg, .png or .pdf: the first figure they allow, as that file, which
/// must not exist unless `overwrite`; else every one they allow, into a folder of that name, replacing what
/// stands there (the files of draw_figure()). Throws Error(usage) when they allow none, or without gnuplot.
void draw_costs(const analysis::Records& costs, const std::string& place, bool overwrite);

}  // namespace kvsim::tools
