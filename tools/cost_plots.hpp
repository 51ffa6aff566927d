#pragma once
#include <string>

#include "analysis/records.hpp"

namespace kvsim::tools {

/// Draws rows of costs. `place` ends in .svg, .png or .pdf: the first figure they allow, as that file, which
/// must not exist unless `overwrite`; else every one they allow, into a folder of that name, replacing what
/// stands there (the files of draw()). Throws Error(usage) when they allow none, or without gnuplot.
void draw_costs(const analysis::Records& costs, const std::string& place, bool overwrite);

}  // namespace kvsim::tools
