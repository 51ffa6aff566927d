#pragma once
/// The report of a study: its figures as files, and one page of HTML.
#include <string>
#include <vector>

#include "analysis/drawing/gnuplot_script.hpp"

namespace kvsim::tools {

struct ReportOptions {
  std::string output{};  ///< of the page; empty: report.html in the folder; "-": standard output
  std::string title{};   ///< empty: the study's own
  std::vector<analysis::Output> formats{};  ///< of the figures, besides svg
};

/// Reads the folder of a study and nothing else, draws into its figures/ and writes the page; what stands
/// there is replaced. Without gnuplot the page says so and has no figures. The same folder gives the same
/// bytes. Throws Error(usage) when `folder` is not that of a study, Error(input) when a file is damaged or
/// cannot be written.
void write_report(const std::string& folder, const ReportOptions& options = {});

}  // namespace kvsim::tools
