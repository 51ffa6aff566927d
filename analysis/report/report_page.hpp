#pragma once
/// The report of a study as one page of HTML that needs nothing else: no network, no script to be read.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/reported_study.hpp"

namespace kvsim::analysis {

/// A figure and its drawings; both empty: it was not drawn.
struct DrawnFigure {
  Figure figure;
  std::string light_svg{}, dark_svg{};
  std::string table{};  ///< of the analysis it shows, beside which it stands; empty: it shows results
};

struct ReportContent {
  ReportedStudy study;
  std::vector<DrawnFigure> figures{};
  std::string undrawn{};  ///< why there are no figures; empty: there are, or none to draw
};

/// The same content gives the same bytes.
std::string report_page(const ReportContent& content);

}  // namespace kvsim::analysis
