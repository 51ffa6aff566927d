// kvsim report: what a study found, as one page and as figures.
#include <algorithm>
#include <filesystem>

#include "analysis/report/report_page.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/view/view_page.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/viewed_run.hpp"

namespace kvsim::tools {
namespace {

struct ReportOptions {
  std::string folder, output;
  std::vector<std::string> formats, views;
  analysis::ReportOptions report;
  bool overwrite = false;
};

/// Views of runs that the study is about, at its budgets and cuts, under the policies that are best
/// somewhere: pages of DIR/views/, to which the report has links.
void write_views(const ReportOptions& options) {
  constexpr std::size_t kMostViewed = 8;
  if (options.views.empty()) return;
  ViewedRunOptions viewed{.cut = ""};
  bool answered = false;
  for (const analysis::NamedTable& table : analysis::read_tables(options.folder)) {
    if (table.name == "answers") answered = !table.records.rows.empty();
    if (table.name == "winners") viewed.policies = analysis::distinct(table.records, "policy");
    if (table.name != "means") continue;
    viewed.budgets = analysis::distinct(table.records, "budget");
    std::vector<std::string> cuts = analysis::distinct(table.records, "cut");
    std::ranges::reverse(cuts);  // the hardest first, of which the report's verdict is
    viewed.cut = joined(cuts, ",");
  }
  if (viewed.policies.empty())
    usage_error("shows the best policies, and this study could compare none", "--view",
                "kvsim view takes policies and budgets of your choice.");
  viewed.policies.resize(std::min(viewed.policies.size(), kMostViewed));
  const std::string folder = options.folder + "/views";
  make_folders(folder);
  for (const std::string& trace : options.views) {
    ResultOutput page(folder + '/' + std::filesystem::path(trace).stem().string() + ".html",
                      options.overwrite);
    ViewedRun run = viewed_run(trace, viewed, true);
    if (answered) add_read_answers(options.folder, run);
    page.commit(analysis::view_page(run.view, run.cells));
  }
}

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
  write_views(options);
  Progress progress;
  const std::string page = analysis::write_report(options.folder, options.report, progress);
  output->commit(page);
}

}  // namespace

void add_report_command(Command app) {
  Command command = app.add_subcommand("report", "Write what a study found as one page of HTML", R"(Examples:
  kvsim report study --overwrite
  kvsim report study -o report.html --title 'Seven policies on long prompts'
  kvsim report study --figures pdf,png --overwrite
  kvsim report study --view study/traces/needle-1000-s1-0.h5 --overwrite
)");
  const auto options = std::make_shared<ReportOptions>();
  command.add_required("DIR", options->folder, "", "Folder that kvsim study wrote");
  command.add_option("-o,--output", options->output, "FILE",
                     "The page (default: report.html in the folder); - prints it");
  command
      .add_option("--figures", options->formats, "LIST",
                  "Comma list of svg, png, pdf: what figures/ in the folder gets besides svg")
      .delimiter(',');
  command
      .add_option("--view", options->views, "TRACE",
                  "A trace of the study: also show its text under the best policies (kvsim view), as a page\n"
                  "of views/ in the folder, to which the report has a link")
      .delimiter(',');
  command.add_option("--title", options->report.title, "TEXT", "Heading of the page (default: the study's)");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing page");
  command.callback([options] { run_report(*options); });
}

}  // namespace kvsim::tools
