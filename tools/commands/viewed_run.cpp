#include "tools/commands/viewed_run.hpp"

#include <algorithm>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/view/view_page.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/table_files.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

void add_viewed_run_options(Command command, ViewedRunOptions& options) {
  command.add_option("--policy", options.policies, "POLICY",
                     "What kvsim replay takes: a comma list, or repeated for several");
  command.add_option("--budget", options.budgets, "LIST",
                     "Comma list of tokens per lane (128), shares of the prompt (25%),\nbytes of the whole "
                     "cache (64MiB)");
  command.add_option("--cut", options.cut, "CUT", std::string(kCutHelp) + "; a comma list for several");
  command.add_option("--sequence", options.sequence, "N",
                     "Of a trace with several: which one, from 0 (default: the first)");
  add_threads(command, options.threads, 4096);
  command.add_option("--seed", options.seed, "N", "Of random policies");
}

ViewedRun viewed_run(const std::string& file, const ViewedRunOptions& options, bool quiet) {
  const std::vector<trace::Cut> cuts = analysis::asked_cuts(options.cut, note);
  std::vector<ChosenSequence> chosen = chosen_sequences(file, options.sequence, cuts);
  if (options.sequence == "all" && chosen.front().name != chosen.back().name)
    usage_error("one sequence is shown at a time", "--sequence all", "Choose one by its number, from 0.");
  ViewedRun run{.chosen = std::move(chosen), .cuts = cuts};
  const ChosenSequence& first = run.chosen.front();
  if (options.policies.empty()) {
    run.view = analysis::viewed_text(first.sequence, first.name);
    return run;
  }
  sim::Request request;
  request.cells = analysis::cells_of(analysis::asked_policies(options.policies, front_end().policies(), note),
                                     analysis::asked_budgets(options.budgets, note));
  request.seed = options.seed;
  request.threads = options.threads;
  std::vector<trace::Sequence> sequences;
  for (const ChosenSequence& each : run.chosen) sequences.push_back(each.sequence);
  const sim::TableFiles tables(first.sequence);
  request.tables = &tables;
  run.view = followed(first.name, quiet, [&](Progress& progress) {
    return analysis::cache_view(sequences, first.name, request, progress);
  });
  first.source->require_unchanged();
  run.cells = request.cells;
  const auto ran = [](const analysis::ViewedCell& cell) { return cell.skipped.empty(); };
  const std::vector<analysis::ViewedCell>& cells = run.view.cuts.front().cells;
  if (std::ranges::none_of(run.view.cuts,
                           [&](const auto& cut) { return std::ranges::any_of(cut.cells, ran); }))
    usage_error("no cell can be evaluated; the first reason:\n  " + cells.front().skipped);
  return run;
}

std::vector<std::string> ViewedRun::names() const {
  std::vector<std::string> out{view.trace};
  if (const std::string& item = sequence().source().header().capture.workload_item; !item.empty())
    out.push_back(item);
  return out;
}

void add_read_answers(const std::string& path, ViewedRun& run) {
  const std::vector<analysis::NamedTable> tables = analysis::read_tables(path);
  const auto answers = std::ranges::find(tables, "answers", &analysis::NamedTable::name);
  analysis::add_answers((answers == tables.end() ? tables.front() : *answers).records, run.names(), run.cells,
                        path, run.view);
}

}  // namespace kvsim::tools
