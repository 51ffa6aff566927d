// kvsim view: a recorded run's text with what each policy has dropped of it, as one page of HTML.
#include <filesystem>
#include <memory>
#include <string>

#include "analysis/view/packed_view.hpp"
#include "analysis/view/view_page.hpp"
#include "sim/base/error.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/viewed_run.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kViewExamples = R"(Examples:
  kvsim view run.h5 --policy keydiff,h2o,snapkv --budget 5%,10%,25%,50% -o view.html
  kvsim view item.h5 --policy keydiff,tova --budget 10% --cut prompt,question -o view.html
)";

struct ViewOptions : ViewedRunOptions {
  std::string file, output, title;
  bool overwrite = false, quiet = false;
};

void write_view(const ViewOptions& options) {
  ResultOutput output(options.output, options.overwrite);
  if (const std::string end = std::filesystem::path(options.output).extension();
      !end.empty() && end != ".html" && end != ".htm")
    usage_error("a view is a page of HTML", "-o " + options.output, "Name it .html.");
  const ViewedRun run = viewed_run(options.file, options, options.quiet);
  output.commit(analysis::view_page(analysis::packed_view(run.view, run.cells),
                                    options.title.empty() ? "kvsim view: " + run.view.trace : options.title));
}

}  // namespace

void add_view_command(Command app) {
  Command command = app.add_subcommand(
      "view", "Show the text of a run, and what each policy forgot of it, as one page of HTML");
  command.footer(kViewExamples);
  const auto options = std::make_shared<ViewOptions>();
  command.add_option("TRACE", options->file, "Trace").required();
  add_viewed_run_options(command, *options);
  command.option("--policy").required();
  command.option("--budget").required();
  command.add_option("-o,--output", options->output, "The page; - prints it").required().type_name("FILE");
  command.add_option("--title", options->title, "What the browser calls the page").type_name("TEXT");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing page");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { write_view(*options); });
}

}  // namespace kvsim::tools
