#include "tools/study/draw_figure.hpp"

#include <sstream>

#include "analysis/drawing/svg_text.hpp"
#include "tools/printing/result_output.hpp"
#include "tools/study/gnuplot.hpp"

namespace kvsim::tools {
namespace {

void write_file(const std::string& path, const std::string& content) {
  ResultOutput(path, true).commit(content);
}

}  // namespace

std::string drawing_of(const analysis::Figure& figure, analysis::Theme theme, analysis::Output output) {
  std::string drawn = run_gnuplot(analysis::gnuplot_script(figure, theme, output));
  return output == analysis::Output::svg ? analysis::page_svg(drawn, figure, theme) : drawn;
}

void draw(const analysis::Figure& figure, const std::string& folder,
          const std::vector<analysis::Output>& formats, const std::vector<analysis::Theme>& themes) {
  const std::string stem = folder + "/" + figure.name;
  std::ostringstream data;
  analysis::write_csv(data, figure.data);
  write_file(stem + ".csv", data.str());
  write_file(stem + ".gp", analysis::gnuplot_script(figure));
  for (const analysis::Output output : formats) {
    for (const analysis::Theme theme : themes) {
      const std::string dark = theme == analysis::Theme::dark ? ".dark" : "";
      write_file(stem + dark + '.' + analysis::output_name(output), drawing_of(figure, theme, output));
    }
  }
}

}  // namespace kvsim::tools
