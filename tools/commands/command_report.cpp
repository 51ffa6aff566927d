// kvsim report: what a study found, as one page and as figures.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/write_report.hpp"
#include "sim/base/atomic_file.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim report study
  kvsim report study -o report.html --title 'Seven policies on long prompts'
  kvsim report study --figures pdf,png
)";

struct Options {
  std::string folder, output;
  std::vector<std::string> formats;
  analysis::ReportOptions report;
};

void run_report(Options& options) {
  for (const std::string& name : options.formats)
    options.report.formats.push_back(analysis::parse_output(name));
  std::optional<ResultOutput> output;
  if (!options.output.empty()) output.emplace(options.output, true);
  const std::string page = analysis::write_report(options.folder, options.report, Progress{});
  if (output)
    output->commit(page);
  else
    write_atomic(options.folder + "/report.html", page);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Write what a study found as one page of HTML");
  command->footer(kExamples);
  const auto options = std::make_shared<Options>();
  command->add_option("DIR", options->folder, "Folder that kvsim study wrote")->required();
  command
      ->add_option("-o,--output", options->output,
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
