#pragma once
/// Figures as files.
#include <string>
#include <vector>

#include "analysis/drawing/gnuplot_script.hpp"

namespace kvsim::tools {

/// The bytes of a drawing. Errors: run_gnuplot().
std::string drawing_of(const analysis::Figure& figure, analysis::Theme theme, analysis::Output output);

/// Writes FOLDER/NAME.csv (the numbers), NAME.gp (the script of the light svg), and per format and theme
/// NAME.svg, NAME.dark.svg, NAME.png, NAME.dark.png, NAME.pdf, NAME.dark.pdf, each complete or not at all.
/// What stands there is replaced. The folder exists. Throws Error(input) when a file cannot be written.
void draw(const analysis::Figure& figure, const std::string& folder,
          const std::vector<analysis::Output>& formats = {analysis::Output::svg},
          const std::vector<analysis::Theme>& themes = {analysis::Theme::light, analysis::Theme::dark});

}  // namespace kvsim::tools
