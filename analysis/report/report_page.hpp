#pragma once
/// The report of a study: its figures as files, and one page of HTML that needs nothing else: no network.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/gnuplot_script.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/reported_study.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::analysis {

/// The report of a study as one page of HTML that needs nothing else: no network. Its own script
/// draws what is chosen.
struct ReportContent {
  ReportedStudy study;
  std::vector<Figure> figures{};
  std::vector<std::string> views{};  ///< names of the pages of views/ beside it (analysis/view)
  std::string undrawn{};             ///< why there are no files of them; empty: there are
};

/// The same content gives the same bytes.
std::string report_page(const ReportContent& content);

/// The report of a study: its figures as files, and one page of HTML.
struct ReportOptions {
  std::string title{};            ///< empty: the study's own
  std::vector<Output> formats{};  ///< of the figures, besides svg
  std::string study{};            ///< study.json as it will be; empty: the folder's
};

/// Reads the folder of a study and nothing else, draws into its figures/, replacing what stands there, and
/// returns the page. Without gnuplot the page says so and has no figures. The same folder gives the same
/// bytes. Throws Error(usage) when `folder` is not that of a study, Error(input) when a file is damaged or
/// cannot be written, Error(interrupted) between figures.
std::string write_report(const std::string& folder, const ReportOptions& options, Progress& progress);

}  // namespace kvsim::analysis
