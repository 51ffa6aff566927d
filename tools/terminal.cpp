#include "tools/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "sim/base/error.hpp"
#include "sim/base/shortage.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/printing/result_output.hpp"
#include "tools/printing/terminal_front_end.hpp"
#include "tools/printing/visible_text.hpp"
#include "tools/signals.hpp"

namespace kvsim::tools {
namespace {

/// A file opened while 0, 1 or 2 is closed would take its number, and messages would be written into it.
void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // Read-only, so that writing results nobody can read still fails.
    if (open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
      std::_Exit(static_cast<int>(ErrorKind::input));
  }
}

/// An error without a text is one that another process tells.
int fail(ErrorKind kind, const std::string& message) {
  if (!message.empty()) std::cerr << "kvsim: " << visible(message) << std::endl;
  return static_cast<int>(kind);
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

int run_and_explain(std::span<const std::string> arguments) {
  try {
    run_command(arguments);
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    if (const std::optional<Error> lack = shortage_of(error)) return fail(lack->kind(), lack->what());
    return fail(ErrorKind::bug, std::string("unexpected error: ") + error.what() +
                                    "\n  This is a bug in kvsim: please report the command that led here.");
  }
}

}  // namespace

int run_at_terminal(std::span<const std::string> arguments, const std::optional<Mpi>& mpi) {
  occupy_standard_descriptors();
  TerminalFrontEnd terminal(mpi);
  const UseFrontEnd use(terminal);
  const int code = exit_code_after_signals(close_stdout(run_and_explain(arguments)));
  // Libraries that have run short may be in no state to be ended.
  if (code == static_cast<int>(kShortage) && !mpi) std::_Exit(code);
  return code;
}

}  // namespace kvsim::tools
