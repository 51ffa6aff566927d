#include "analysis/report/write_report.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/report/report_page.hpp"
#include "analysis/results/cuts.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder_entries.hpp"

namespace kvsim::analysis {
namespace {

/// Draws figures into a folder until gnuplot turns out to be missing; from then on only their numbers and
/// scripts are written.
class Drawings {
 public:
  Drawings(std::string folder, std::vector<Output> formats)
      : folder_(std::move(folder)), formats_(std::move(formats)) {
    std::error_code failed;
    if (std::filesystem::is_symlink(folder_, failed))
      input_error("is a link, which a study does not follow", folder_, "Put a folder there.");
    make_folders(folder_);
    if (std::ranges::find(formats_, Output::svg) == formats_.end()) formats_.push_back(Output::svg);
  }

  void draw(const Figure& figure) {
    if (missing_.empty()) {
      try {
        return draw_figure(figure, folder_, formats_);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        missing_ = error.what();
      }
    }
    draw_figure(figure, folder_, {}, {});
  }

  /// Why nothing was drawn; empty: everything was.
  const std::string& missing() const { return missing_; }

 private:
  const std::string folder_;
  std::vector<Output> formats_;
  std::string missing_;
};

void add_figures(ReportContent& content, Drawings& drawings, Progress& progress) {
  // Lent for as long as figures are made: results can be large.
  FigureTables tables;
  tables.results = std::move(content.study.results);
  tables.tables = std::move(content.study.tables);
  const auto add = [&](const FigureKind& kind, const FigureTables& from, const std::string& cut) {
    progress.advance();
    for (Figure& figure : figures_of(kind, from, {.cut = cut})) {
      progress.check();
      drawings.draw(figure);
      content.figures.push_back(std::move(figure));
    }
  };
  const std::vector<std::string> cuts = cuts_of(tables.results);
  const auto of_cuts = std::ranges::count_if(
      figure_kinds(), [](const FigureKind& kind) { return !kind.compares_cuts && *kind.table == '\0'; });
  progress.total = figure_kinds().size() + (std::max<std::size_t>(cuts.size(), 1) - 1) * of_cuts;
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

std::string write_report(const std::string& folder, const ReportOptions& options, Progress& progress) {
  ReportContent content{read_reported_study(folder, options.study)};
  if (!options.title.empty()) content.study.title = options.title;
  Drawings drawings(folder + "/figures", options.formats);
  add_figures(content, drawings, progress);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/views", none))
    if (entry.path().extension() == ".html") content.views.push_back(entry.path().filename().string());
  std::ranges::sort(content.views);
  return report_page(content);
}

}  // namespace kvsim::analysis
