#pragma once
/// Figures as scripts for gnuplot 5.4: complete, with their data, to be read and changed by people. A script
/// is a function of the figure alone and writes the drawing to standard output.
#include <string>
#include <string_view>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

enum class Output { svg, png, pdf };
/// "svg", "png", "pdf": also the ends of the files' names.
const char* output_name(Output output);
/// Throws Error(usage) with the nearest names.
Output parse_output(std::string_view name);

/// Text of the figure is data: whatever it holds, the script draws it and runs none of it. Throws Error(bug)
/// for a figure without panels.
std::string gnuplot_script(const Figure& figure, Theme theme = Theme::light, Output output = Output::svg);

}  // namespace kvsim::analysis
