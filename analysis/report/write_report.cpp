#include "analysis/report/write_report.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/report/report_page.hpp"
#include "analysis/results/cuts.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_file.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::uint64_t kMostDrawingBytes = 1ULL << 28;  // of a drawing

/// Draws figures into a folder until gnuplot turns out to be missing; from then on only their numbers and
/// scripts are written.
class Drawings {
 public:
  Drawings(std::string folder, std::vector<Output> formats)
      : folder_(std::move(folder)), formats_(std::move(formats)) {
    std::error_code failed;
    if (std::filesystem::is_symlink(folder_, failed))
      input_error("is a link, which a study does not follow", folder_, "Put a folder there.");
    std::filesystem::create_directories(folder_, failed);
    if (failed) input_error("cannot be made: " + failed.message(), folder_);
    if (std::find(formats_.begin(), formats_.end(), Output::svg) == formats_.end())
      formats_.push_back(Output::svg);  // the page shows them
  }

  DrawnFigure drawn(Figure figure, const char* table) {
    DrawnFigure out{std::move(figure), {}, {}, table};
    if (missing_.empty()) {
      try {
        draw_figure(out.figure, folder_, formats_);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        missing_ = error.what();
      }
    }
    if (!missing_.empty()) {
      draw_figure(out.figure, folder_, {}, {});
      return out;
    }
    const std::string stem = folder_ + '/' + out.figure.name;
    out.drawing = {read_file(stem + ".svg", kMostDrawingBytes),
                   read_file(stem + ".dark.svg", kMostDrawingBytes)};
    if (out.figure.width == Width::column) return out;
    Figure narrow = out.figure;
    narrow.width = Width::column;
    out.narrow = {drawing_of(narrow, Theme::light, Output::svg),
                  drawing_of(narrow, Theme::dark, Output::svg)};
    return out;
  }

  /// Why nothing was drawn; empty: everything was.
  const std::string& missing() const { return missing_; }

 private:
  const std::string folder_;
  std::vector<Output> formats_;
  std::string missing_;
};

void add_figures(ReportContent& content, Drawings& drawings, const Progress& progress) {
  // Lent for as long as figures are made: results can be large.
  FigureTables tables;
  tables.results = std::move(content.study.results);
  tables.tables = std::move(content.study.tables);
  const auto add = [&](const FigureKind& kind, const FigureTables& from, const std::string& cut) {
    for (Figure& figure : figures_of(kind, from, {.cut = cut})) {
      progress.check();
      content.figures.push_back(drawings.drawn(std::move(figure), kind.table));
    }
  };
  const std::vector<std::string> cuts = cuts_of(tables.results);
  for (const FigureKind& kind : figure_kinds())
    if (kind.compares_cuts) add(kind, tables, "");
  for (const std::string& cut : cuts) {
    const FigureTables part = tables_at(tables, cut);
    for (const FigureKind& kind : figure_kinds())
      if (!kind.compares_cuts && *kind.table == '\0') add(kind, part, cuts.size() > 1 ? cut : "");
  }
  for (const FigureKind& kind : figure_kinds())
    if (*kind.table != '\0') add(kind, tables, "");
  content.undrawn = drawings.missing();
  content.study.results = std::move(tables.results);
  content.study.tables = std::move(tables.tables);
}

}  // namespace

std::string write_report(const std::string& folder, const ReportOptions& options, const Progress& progress) {
  ReportContent content{read_reported_study(folder, options.study)};
  if (!options.title.empty()) content.study.title = options.title;
  Drawings drawings(folder + "/figures", options.formats);
  add_figures(content, drawings, progress);
  return report_page(content);
}

}  // namespace kvsim::analysis
