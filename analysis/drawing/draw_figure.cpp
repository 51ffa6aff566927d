#include "analysis/drawing/draw_figure.hpp"

#include <sstream>

#include "analysis/drawing/gnuplot.hpp"
#include "analysis/drawing/svg_text.hpp"
#include "sim/base/atomic_file.hpp"

namespace kvsim::analysis {

std::string drawing_of(const Figure& figure, Theme theme, Output output) {
  std::string drawn = run_gnuplot(gnuplot_script(figure, theme, output));
  return output == Output::svg ? page_svg(drawn, figure, theme) : drawn;
}

void draw_figure(const Figure& figure, const std::string& folder, const std::vector<Output>& formats,
                 const std::vector<Theme>& themes) {
  const std::string stem = folder + "/" + figure.name;
  std::ostringstream data;
  write_csv(data, figure.data);
  write_atomic(stem + ".csv", data.str());
  write_atomic(stem + ".gp", gnuplot_script(figure));
  for (const Output output : formats) {
    for (const Theme theme : themes) {
      const std::string dark = theme == Theme::dark ? ".dark" : "";
      write_atomic(stem + dark + '.' + output_name(output), drawing_of(figure, theme, output));
    }
  }
}

}  // namespace kvsim::analysis
