// kvsim report: what a study found, as one page and as figures.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/write_report.hpp"
#include "sim/base/error.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kReportExamples = R"(Examples:
  kvsim report study --overwrite
  kvsim report study -o report.html --title 'Seven policies on long prompts'
  kvsim report study --figures pdf,png --overwrite
)";

struct ReportOptions {
  std::string folder, output;
  std::vector<std::string> formats;
  analysis::ReportOptions report;
  bool overwrite = false;
};

void run_report(ReportOptions& options) {
  for (const std::string& name : options.formats)
    options.report.formats.push_back(analysis::parse_output(name));
  if (const std::string end = std::filesystem::path(options.output).extension();
      !end.empty() && end != ".html" && end != ".htm")
    usage_error("a report is a page of HTML", "-o " + options.output,
                "Name it .html; --figures pdf draws its figures so.");
  std::optional<ResultOutput> output;
  if (!options.output.empty())
    output.emplace(options.output, options.overwrite);
  else if (std::filesystem::is_directory(options.folder))
    output.emplace(options.folder + "/report.html", options.overwrite);
  Progress progress;
  const std::string page = analysis::write_report(options.folder, options.report, progress);
  output->commit(page);
}

}  // namespace

void add_report_command(Command app) {
  Command command = app.add_subcommand("report", "Write what a study found as one page of HTML");
  command.footer(kReportExamples);
  const auto options = std::make_shared<ReportOptions>();
  command.add_option("DIR", options->folder, "Folder that kvsim study wrote").required();
  command
      .add_option("-o,--output", options->output,
                  "The page (default: report.html in the folder); - prints it")
      .type_name("FILE");
  command
      .add_option("--figures", options->formats,
                  "Comma list of svg, png, pdf: what figures/ in the folder gets besides svg")
      .delimiter(',')
      .allow_extra_args(false)
      .type_name("LIST");
  command.add_option("--title", options->report.title, "Heading of the page (default: the study's)")
      .type_name("TEXT");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing page");
  command.callback([options] { run_report(*options); });
}

}  // namespace kvsim::tools
