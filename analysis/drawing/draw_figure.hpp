#pragma once
/// Figures as files.
#include <string>
#include <vector>

#include "analysis/drawing/gnuplot_script.hpp"

namespace kvsim::analysis {

/// The bytes of a drawing. Errors: run_gnuplot().
std::string drawing_of(const Figure& figure, Theme theme, Output output);

/// Writes FOLDER/NAME.csv (the numbers), NAME.gp (the script of the light svg), and per format and theme
/// NAME.svg, NAME.dark.svg, NAME.png, NAME.dark.png, NAME.pdf, NAME.dark.pdf, each complete or not at all.
/// What stands there is replaced. The folder exists. Throws Error(input) when a file cannot be written.
void draw_figure(const Figure& figure, const std::string& folder,
                 const std::vector<Output>& formats = {Output::svg},
                 const std::vector<Theme>& themes = {Theme::light, Theme::dark});

}  // namespace kvsim::analysis
