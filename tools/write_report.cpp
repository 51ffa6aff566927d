#include "tools/write_report.hpp"

#include "analysis/report/report_page.hpp"
#include "tools/result_output.hpp"

namespace kvsim::tools {

void write_report(const std::string& folder, const ReportOptions& options) {
  analysis::ReportContent content{analysis::read_reported_study(folder)};
  ResultOutput output(options.output.empty() ? folder + "/report.html" : options.output, true);
  if (!options.title.empty()) content.study.title = options.title;
  output.commit(analysis::report_page(content));
}

}  // namespace kvsim::tools
