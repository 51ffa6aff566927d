// What the command is asked for goes to a subcommand.
#include "tools/commands/run_command.hpp"

#include <ostream>

#include "analysis/results/table_look.hpp"
#include "sim/base/inputs.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/named_inputs.hpp"
#include "tools/options/option_groups.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/version_text.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kRunCommandExamples = R"(Examples:
  kvsim capture --model DIR --prompt question.txt --max-new-tokens 32 -o run.h5
  kvsim replay run.h5 --policy all --budget 10%,25%,50%
  kvsim study study.json -o results
  kvsim help cost estimate

Exit codes: 0 ok, 1 bug in kvsim, 2 usage, 3 a file cannot be read or written, 4 interrupted,
5 compared results differ, 6 the machine is short of memory, threads, processes or open files
)";

}  // namespace

void run_command(std::span<const std::string> arguments) {
  analysis::TableLook look{.width = front_end().width()};
  const analysis::UseTableLook use(look);
  const CommandLine line(
      "kvsim",
      "Offline study of KV cache policies: record a run of a language model once, then ask what any "
      "eviction\npolicy at any budget would have lost.",
      kRunCommandExamples, version_text);
  const Command app = line.root();
  app.require_subcommand(1);
  add_capture_command(app);
  add_workload_command(app);
  add_trace_command(app);
  add_replay_command(app);
  add_evaluate_command(app);
  add_choose_command(app);
  add_allocate_command(app);
  add_calibrate_command(app);
  add_analyze_command(app);
  add_plot_command(app);
  add_report_command(app);
  add_view_command(app);
  add_diff_command(app);
  add_agreement_command(app);
  add_export_command(app);
  add_study_command(app);
  add_cost_command(app);
  add_requests_command(app);
  add_config_command(app);
  add_policy_command(app);
  add_help_command(app);
  add_completion_command(app);
  add_man_command(app);
  require_names_of_outputs(app);
  group_shared_options(app);
  inputs::begin_run();
  note_named_inputs(arguments);
  front_end().results() << line.parse(arguments);
  look.check_columns();
  for (const std::string& text : inputs::remarks()) note(text);
}

}  // namespace kvsim::tools
