#pragma once
/// The report of a study as one page of HTML that needs nothing else: no network. Its own script
/// draws what is chosen.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/reported_study.hpp"

namespace kvsim::analysis {

struct ReportContent {
  ReportedStudy study;
  std::vector<Figure> figures{};
  std::vector<std::string> views{};  ///< names of the pages of views/ beside it (analysis/view)
  std::string undrawn{};  ///< why there are no files of them; empty: there are
};

/// The same content gives the same bytes.
std::string report_page(const ReportContent& content);

}  // namespace kvsim::analysis
