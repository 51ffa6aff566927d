// The kvsim command: what it is asked for goes to a subcommand, what goes wrong becomes a message and an exit
// code.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <new>
#include <stdexcept>

#include "sim/base/error.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/help_text.hpp"
#include "tools/printing/result_output.hpp"
#include "tools/printing/version_text.hpp"
#include "tools/requests/command_line_errors.hpp"
#include "tools/signals.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim capture --model DIR --prompt question.txt --max-new-tokens 32 -o run.h5
  kvsim replay run.h5 --policy all --budget 10%,25%,50%
  kvsim study study.json -o results
  kvsim help cost estimate

Exit codes: 0 ok, 1 bug in kvsim, 2 usage, 3 a file cannot be read or written, 4 interrupted,
5 compared results differ
)";

/// A file opened while 0, 1 or 2 is closed would take its number, and messages would be written into it.
void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // Read-only, so that writing results nobody can read still fails.
    if (open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
      std::_Exit(static_cast<int>(ErrorKind::input));
  }
}

int fail(ErrorKind kind, const std::string& message) {
  std::cerr << "kvsim: " << message << std::endl;
  return static_cast<int>(kind);
}

int out_of_memory() {
  return fail(ErrorKind::usage,
              "out of memory\n  Ask for fewer cells, less --per detail or fewer --threads.");
}

/// Results still in buffers are lost silently at exit unless they are looked for. A reader that has seen
/// enough
/// (`| head`) is no failure, and 0 keeps it from becoming one under `set -o pipefail`.
int close_stdout(int code) {
  std::cout.flush();
  const bool lost = std::fflush(stdout) != 0 || !std::cout;
  if (!lost || code != 0) return code;
  if (reader_gone(STDOUT_FILENO)) return 0;
  return fail(ErrorKind::input, "cannot write to standard output: is the disk full?");
}

int run(int argc, char** argv) {
  CLI::App app(
      "Offline study of KV cache policies: record a run of a language model once, then ask what any "
      "eviction\n"
      "policy at any budget would have lost.",
      "kvsim");
  app.formatter(std::make_shared<HelpText>());
  app.footer(kExamples);
  app.set_version_flag("-V,--version", version_text, "Version, commit, compiler, libraries");
  app.require_subcommand(1);
  add_capture_command(app);
  add_workload_command(app);
  add_trace_command(app);
  add_replay_command(app);
  add_evaluate_command(app);
  add_allocate_command(app);
  add_calibrate_command(app);
  add_analyze_command(app);
  add_plot_command(app);
  add_report_command(app);
  add_diff_command(app);
  add_agreement_command(app);
  add_export_command(app);
  add_study_command(app);
  add_cost_command(app);
  add_config_command(app);
  add_policy_command(app);
  add_help_command(app);
  add_completion_command(app);
  add_man_command(app);
  require_names_of_outputs(app);
  group_shared_options(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
  } catch (const CLI::Success&) {
    std::cout << app.help();
  } catch (const CLI::ParseError& error) {
    usage_error(explain(app, error));
  }
  return 0;
}

int run_and_explain(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {  // a container of more bytes than there are addresses
    return out_of_memory();
  } catch (const std::exception& error) {
    return fail(ErrorKind::bug, std::string("unexpected error: ") + error.what() +
                                    "\n  This is a bug in kvsim: please report the command that led here.");
  }
}

}  // namespace
}  // namespace kvsim::tools

// Other static objects take a while to be made, and a signal may come before main().
__attribute__((constructor(101))) static void handle_signals_first() {
  kvsim::tools::handle_signals();
}

int main(int argc, char** argv) {
  using namespace kvsim::tools;
  occupy_standard_descriptors();
  return exit_code_after_signals(close_stdout(run_and_explain(argc, argv)));
}
