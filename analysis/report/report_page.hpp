#pragma once
/// The report of a study as one page of HTML that needs nothing else: no network, no script to be read.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/reported_study.hpp"

namespace kvsim::analysis {

/// One drawing of a figure in each theme; both empty: it was not drawn.
struct Drawing {
  std::string light_svg{}, dark_svg{};
};

struct DrawnFigure {
  Figure figure;
  Drawing drawing{};
  /// The same one column wide, for screens on which text of the other would be too small to be read; empty
  /// for a figure that is no wider anyway.
  Drawing narrow{};
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
