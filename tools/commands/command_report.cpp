// kvsim report: what a study found, as one page and as figures.
#include <memory>
#include <string>
#include <vector>

#include "tools/commands/command.hpp"
#include "tools/study/write_report.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim report study
  kvsim report study -o report.html --title 'Seven policies on long prompts'
  kvsim report study --figures pdf,png
)";

struct Options {
  std::string folder;
  std::vector<std::string> formats;
  ReportOptions report;
};

void run_report(Options& options) {
  for (const std::string& name : options.formats)
    options.report.formats.push_back(analysis::parse_output(name));
  write_report(options.folder, options.report);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Write what a study found as one page of HTML");
  command->footer(kExamples);
  const auto options = std::make_shared<Options>();
  command->add_option("DIR", options->folder, "Folder that kvsim study wrote")->required();
  command
      ->add_option("-o,--output", options->report.output,
                   "The page, replaced if it exists (default: report.html in the folder); - prints it")
      ->type_name("FILE");
  command
      ->add_option("--figures", options->formats,
                   "Comma list of svg, png, pdf: what figures/ in the folder gets besides svg")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->add_option("--title", options->report.title, "Heading of the page (default: the study's)")
      ->type_name("TEXT");
  command->callback([options] { run_report(*options); });
}

}  // namespace kvsim::tools
