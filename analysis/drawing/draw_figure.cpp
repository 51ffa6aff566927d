#include "analysis/drawing/draw_figure.hpp"

#include <algorithm>
#include <sstream>

#include "analysis/drawing/gnuplot.hpp"
#include "analysis/drawing/svg_text.hpp"
#include "sim/base/atomic_file.hpp"

namespace kvsim::analysis {
namespace {

/// Overwrites the time of writing, which cairo puts into every PDF, by spaces: the same figure is the same
/// bytes. The length stays, because a PDF refers to its objects by their places.
void remove_date(std::string& pdf) {
  const std::size_t at = pdf.rfind("/CreationDate (D:");
  if (at == std::string::npos) return;
  const std::size_t end = pdf.find(')', at);
  if (end != std::string::npos) std::fill(pdf.begin() + at, pdf.begin() + end + 1, ' ');
}

}  // namespace

std::string drawing_of(const Figure& figure, Theme theme, Output output) {
  std::string drawn = run_gnuplot(gnuplot_script(figure, theme, output));
  if (output == Output::pdf) remove_date(drawn);
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
