#include "tools/printing/terminal_front_end.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "sim/base/error.hpp"
#include "tools/printing/progress_display.hpp"
#include "tools/printing/visible_text.hpp"

namespace kvsim::tools {

std::ostream& TerminalFrontEnd::results() {
  static VisibleText text(*std::cout.rdbuf());
  static std::ostream out(&text);
  return out;
}

std::ostream& TerminalFrontEnd::data() {
  return isatty(STDOUT_FILENO) == 1 ? results() : std::cout;
}

std::ostream* TerminalFrontEnd::painted() {
  const auto said = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
  const bool refused = !said("NO_COLOR").empty() || said("TERM").empty() || said("TERM") == "dumb";
  return isatty(STDOUT_FILENO) == 1 && !refused ? &std::cout : nullptr;
}

std::size_t TerminalFrontEnd::width() const {
  const char* const said = std::getenv("COLUMNS");
  if (const int columns = said != nullptr ? std::atoi(said) : 0; columns > 0)
    return static_cast<std::size_t>(columns);
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void TerminalFrontEnd::note(const std::string& text) {
  std::cerr << "kvsim: note: " << visible(text) << '\n';
}

void TerminalFrontEnd::announce(const std::string& lines) {
  std::cerr << visible(lines);
}

std::shared_ptr<void> TerminalFrontEnd::follow(Progress& progress, const std::string& label, bool quiet) {
  return std::make_shared<ProgressDisplay>(progress, label, quiet);
}

analysis::Ranks* TerminalFrontEnd::ranks() {
  const std::size_t processes = launched_processes();
  if (processes < 2) return nullptr;
  if (!mpi_)
    usage_error(
        "this kvsim was built without MPI, and was started as " + std::to_string(processes) + " processes",
        "", "Start one process, or build the command where libboost-mpi1.81-dev is installed.");
  return mpi_->join();
}

std::string TerminalFrontEnd::mpi() const {
  return mpi_ ? mpi_->version : FrontEnd::mpi();
}

}  // namespace kvsim::tools
