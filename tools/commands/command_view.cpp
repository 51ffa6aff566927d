// kvsim view: a recorded run's text with what each policy has dropped of it, as one page of HTML.
#include <filesystem>

#include "analysis/loop/evaluation.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/view/view_page.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/viewed_run.hpp"
#include "tools/options/mistaken_files.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::tools {
namespace {

struct ViewOptions : ViewedRunOptions {
  std::string file, output, title, answers, model, workload;
  bool overwrite = false, quiet = false;
};

/// The recorded prompt, and what answers it: what was recorded, or what the workload expects.
capture::WorkloadItem asked_item(const ViewOptions& options, const ViewedRun& run,
                                 const analysis::Evaluation& model) {
  capture::WorkloadItem asked = model.recorded(run.sequence(), run.view.trace).back();
  if (options.workload.empty()) return asked;
  const std::string& item = run.sequence().source().header().capture.workload_item;
  if (item.empty())
    input_error("does not say which prompt of a workload it is", options.file,
                "Leave --workload out: the recorded answer is the right one then.");
  capture::WorkloadItem expected = capture::read_workload_item(options.workload, item);
  asked.expect = expected.expect;
  asked.answers = std::move(expected.answers);
  asked.answer_ids.clear();
  return asked;
}

/// The closed loop's rows: those of a file, or of running it now.
void add_closed_loop(const ViewOptions& options, ViewedRun& run) {
  if (!options.answers.empty()) return add_read_answers(options.answers, run);
  if (options.model.empty()) {
    if (!options.workload.empty())
      usage_error("says which answers are right", "--workload", "Add --model DIR, which answers.");
    return;
  }
  analysis::Evaluation model(checkpoint_at(options.model));
  const std::vector<capture::WorkloadItem> items{asked_item(options, run, model)};
  analysis::EvaluationOptions evaluation;
  for (const sim::Cell& cell : run.cells)
    if (!analysis::is_oracle(cell.composition)) evaluation.cells.push_back(cell);
  evaluation.modes = {sim::LoopMode::greedy};
  evaluation.cuts = run.cuts;
  evaluation.max_new_tokens = analysis::tokens_to_generate(items, model.tokenizer());
  evaluation.seed = options.seed;
  evaluation.threads = options.threads;
  if (evaluation.cells.empty()) return;
  const analysis::Records rows{analysis::columns_of(evaluation),
                               followed("answers", options.quiet, [&](Progress& progress) {
                                 return model.answer(items, evaluation, progress);
                               })};
  analysis::add_answers(rows, {items.front().id}, run.cells, options.model, run.view);
}

void write_view(const ViewOptions& options) {
  ResultOutput output(options.output, options.overwrite);
  if (const std::string end = std::filesystem::path(options.output).extension();
      !end.empty() && end != ".html" && end != ".htm")
    usage_error("a view is a page of HTML", "-o " + options.output, "Name it .html.");
  if (!options.answers.empty() && !options.model.empty())
    usage_error("cannot both be", "--answers, --model", "Read the answers, or let the model give them.");
  ViewedRun run = viewed_run(options.file, options, options.quiet);
  add_closed_loop(options, run);
  output.commit(analysis::view_page(run.view, run.cells, options.title));
}

}  // namespace

void add_view_command(Command app) {
  Command command = app.add_subcommand(
      "view", "Show the text of a run, and what each policy forgot of it, as one page of HTML", R"(Examples:
  kvsim view run.h5 --policy keydiff,h2o,snapkv --budget 5%,10%,25%,50% -o view.html
  kvsim view item.h5 --policy keydiff,tova --budget 10% --cut prompt,question -o view.html
  kvsim view item.h5 --policy keydiff,tova --budget 10%,25% --model DIR --workload keys.jsonl -o view.html
)");
  const auto options = std::make_shared<ViewOptions>();
  command.add_required("TRACE", options->file, "", "Trace");
  add_viewed_run_options(command, *options);
  command.option("--policy").required();
  command.option("--budget").required();
  command.add_option("--model", options->model, "DIR",
                     "The run's own model, which answers through every cache, above its text;\n"
                     "right is what was recorded");
  command.add_option("--workload", options->workload, "FILE",
                     "With --model: the prompts that the run is one of; right is what these expect");
  command.add_option("--answers", options->answers, "FILE",
                     "Answers of the run instead: rows of kvsim evaluate, or the folder of a study");
  command.add_required("-o,--output", options->output, "FILE", "The page; - prints it");
  command.add_option("--title", options->title, "TEXT", "What the browser calls the page");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing page");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { write_view(*options); });
}

}  // namespace kvsim::tools
