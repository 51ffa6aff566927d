#include "tools/commands/cost_plots.hpp"

#include <filesystem>

#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "sim/base/error.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr std::string_view kTable = "cost";

std::vector<analysis::Figure> figures_of(const analysis::Records& costs) {
  analysis::FigureTables tables;
  tables.tables[std::string(kTable)] = costs;
  tables.source = "costs.csv";
  std::vector<analysis::Figure> out;
  for (const analysis::FigureKind& kind : analysis::figure_kinds())
    if (std::string_view(kind.table) == kTable)
      for (analysis::Figure& figure : kind.build(tables, {})) out.push_back(std::move(figure));
  return out;
}

std::string extension(const std::string& place) {
  return std::filesystem::path(place).extension().string();
}

bool is_picture(const std::string& place) {
  const std::string end = extension(place);
  return end == ".svg" || end == ".png" || end == ".pdf";
}

/// Figures of costs in a folder stay unless --overwrite is said.
void refuse_to_replace_figures(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    for (const analysis::FigureKind& kind : analysis::figure_kinds())
      if (std::string_view(kind.table) == kTable && entry.path().filename().string().starts_with(kind.name))
        usage_error("exists already", entry.path().string(), "Add --overwrite, or choose another folder.");
}

}  // namespace

void check_plot_place(const std::string& place, bool overwrite) {
  if (place.empty()) usage_error("is empty", "--plot", "Name a folder, or a .svg, .png or .pdf.");
  if (is_picture(place)) return refuse_output(place, overwrite);
  std::error_code failed;
  if (std::filesystem::is_directory(place, failed))
    return overwrite ? void() : refuse_to_replace_figures(place);
  if (std::filesystem::exists(place, failed))
    usage_error("exists already, and is no folder", place, "Choose another name.");
  if (!extension(place).empty())
    usage_error("is no .svg, .png or .pdf", "--plot " + place,
                "A new folder with a dot in its name ends with a slash.");
}

void draw_costs(const analysis::Records& costs, const std::string& place, bool overwrite) {
  const std::vector<analysis::Figure> figures = figures_of(costs);
  if (figures.empty()) usage_error("no figure can be made of these rows", "--plot " + place);
  if (is_picture(place)) {
    ResultOutput output(place, overwrite);
    return output.commit(analysis::drawing_of(figures.front(), analysis::Theme::light,
                                              analysis::parse_output(extension(place).substr(1))));
  }
  std::error_code failed;
  std::filesystem::create_directories(place, failed);
  if (failed) input_error("cannot be made: " + failed.message(), place);
  for (const analysis::Figure& figure : figures) analysis::draw_figure(figure, place);
}

}  // namespace kvsim::tools
