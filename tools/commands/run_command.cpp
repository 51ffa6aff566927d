// What the command is asked for goes to a subcommand.
#include "tools/commands/run_command.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <string_view>

#include "analysis/results/text_table.hpp"
#include "sim/base/inputs.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/version_text.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

bool is_output(const std::string& option) {
  return option == "-o" || option == "--output" || option == "--decisions" || option == "--plot" ||
         option == "--second-pass";
}

/// What a study was made of and what it found; its report and figures may be made again.
void note_study(const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(folder / "study.json", failed)) return;
  for (const char* name : {"study.json", "prompts.jsonl"}) inputs::note((folder / name).string());
  for (const char* name : {"tasks", "tables", "traces"})
    for (fs::recursive_directory_iterator at(folder / name, failed), end; !failed && at != end;
         at.increment(failed))
      inputs::note(at->path().string());
}

/// A word without a dot or a slash is rather the name of a policy, a table or a figure.
void note_file(const std::string& name) {
  if (name.find_first_of("./") != std::string::npos) inputs::note(name);
}

/// Notes (sim/base/inputs.hpp) the files that a command line names other than as outputs, and those of
/// studies whose folders it names, so that an output that is one of them is refused before any work.
void note_named_inputs(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (is_output(word)) ++i;
    if (is_output(word.substr(0, word.find('='))) || word.starts_with("-o")) continue;
    note_study(word);
    note_file(word);
    // --model=DIR, a list, and full+palu(file=TABLES).
    for (std::size_t begin = 0, end = 0; end < word.size(); begin = end + 1) {
      end = std::min(word.find_first_of("=,()", begin), word.size());
      note_file(word.substr(begin, end - begin));
    }
  }
}

constexpr const char* kRunCommandExamples = R"(Examples:
  kvsim capture --model DIR --prompt question.txt --max-new-tokens 32 -o run.h5
  kvsim replay run.h5 --policy all --budget 10%,25%,50%
  kvsim study study.json -o results
  kvsim help cost estimate

Exit codes: 0 ok, 1 bug in kvsim, 2 usage, 3 a file cannot be read or written,
4 interrupted, 5 compared results differ, 6 the machine is short of memory,
threads, processes or open files
)";

struct Added {
  std::string_view name;
  void (*add)(Command);
  bool shows_others = false;
};
constexpr Added kCommands[] = {
    {"capture", add_capture_command},   {"workload", add_workload_command},
    {"trace", add_trace_command},       {"replay", add_replay_command},
    {"evaluate", add_evaluate_command}, {"choose", add_choose_command},
    {"allocate", add_allocate_command}, {"calibrate", add_calibrate_command},
    {"analyze", add_analyze_command},   {"plot", add_plot_command},
    {"report", add_report_command},     {"view", add_view_command},
    {"diff", add_diff_command},         {"agreement", add_agreement_command},
    {"export", add_export_command},     {"study", add_study_command},
    {"cost", add_cost_command},         {"requests", add_requests_command},
    {"config", add_config_command},     {"policy", add_policy_command},
    {"help", add_help_command, true},   {"completion", add_completion_command, true},
    {"man", add_man_command, true}};

/// All options together take longer than many a command: where `first` is one that shows no other, these are
/// names alone, as messages need them.
void add_commands(Command app, std::string_view first) {
  const Added* const asked = std::ranges::find(kCommands, first, &Added::name);
  const bool all = asked == std::end(kCommands) || asked->shows_others;
  for (const Added& command : kCommands)
    if (all || &command == asked)
      command.add(app);
    else
      app.add_subcommand(std::string(command.name), "");
}

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
  add_commands(app, arguments.empty() ? "" : arguments[0]);
  require_names_of_outputs(app);
  group_shared_options(app);
  inputs::begin_run();
  note_named_inputs(arguments);
  front_end().results() << line.parse(arguments);
  look.check_columns();
  for (const std::string& text : inputs::remarks()) note(text);
}

}  // namespace kvsim::tools
