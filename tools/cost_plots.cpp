#include "tools/cost_plots.hpp"

#include <filesystem>

#include "analysis/figures/figure_kind.hpp"
#include "sim/base/error.hpp"
#include "tools/draw_figure.hpp"
#include "tools/result_output.hpp"

namespace kvsim::tools {
namespace {

std::vector<analysis::Figure> figures_of(const analysis::Records& costs) {
  constexpr const char* kTable = "cost";
  analysis::FigureTables tables;
  tables.tables[kTable] = costs;
  tables.source = "costs.csv";
  std::vector<analysis::Figure> out;
  for (const analysis::FigureKind& kind : analysis::figure_kinds())
    if (std::string_view(kind.table) == kTable)
      for (analysis::Figure& figure : kind.build(tables, {})) out.push_back(std::move(figure));
  return out;
}

}  // namespace

void draw_costs(const analysis::Records& costs, const std::string& place, bool overwrite) {
  const std::vector<analysis::Figure> figures = figures_of(costs);
  if (figures.empty()) usage_error("no figure can be made of these rows", "--plot " + place);
  const std::string end = std::filesystem::path(place).extension().string();
  if (end == ".svg" || end == ".png" || end == ".pdf") {
    ResultOutput output(place, overwrite);
    return output.commit(
        drawing_of(figures.front(), analysis::Theme::light, analysis::parse_output(end.substr(1))));
  }
  std::error_code failed;
  std::filesystem::create_directories(place, failed);
  if (failed) input_error("cannot be made: " + failed.message(), place);
  for (const analysis::Figure& figure : figures) draw(figure, place);
}

}  // namespace kvsim::tools
