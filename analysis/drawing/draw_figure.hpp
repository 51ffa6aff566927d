#pragma once
/// Figures as files.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/gnuplot_script.hpp"
#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

/// The bytes of a drawing. Errors: run_gnuplot().
std::string drawing_of(const Figure& figure, Theme theme, Output output);

/// Writes FOLDER/NAME.csv (the numbers), NAME.gp (the script of the light svg), and per format and theme
/// NAME.svg, NAME.dark.svg, NAME.png, NAME.dark.png, NAME.pdf, NAME.dark.pdf, each complete or not at all.
/// What stands there is replaced. The folder exists. Throws Error(input) when a file cannot be written.
void draw_figure(const Figure& figure, const std::string& folder,
                 const std::vector<Output>& formats = {Output::svg},
                 const std::vector<Theme>& themes = {Theme::light, Theme::dark});

/// gnuplot's svg of a figure, fit for pages: title and description for those who hear it (reading, remark and
/// command of the figure), names of parts that are unique where several drawings stand in one page, and cells
/// of large heat maps left square instead of blurred.
std::string page_svg(const std::string& svg, const Figure& figure, Theme theme);

}  // namespace kvsim::analysis
