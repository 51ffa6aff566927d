#include "tools/printing/terminal_front_end.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/progress.hpp"
#include "tools/printing/visible_text.hpp"
#include "tools/signals.hpp"

namespace kvsim::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// "1:05" or "2:03:04".
std::string duration_text(double seconds) {
  const auto whole = static_cast<unsigned long long>(seconds);
  const unsigned long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  std::array<char, 40> text{};
  if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%llu:%02llu:%02llu", hours, minutes, rest);
  } else {
    std::snprintf(text.data(), text.size(), "%llu:%02llu", minutes, rest);
  }
  return text.data();
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string bar(double share, std::size_t width) {
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
  return '[' + std::string(filled, '#') + std::string(width - filled, '.') + ']';
}

/// A bar with ETA on a terminal, a line every five seconds elsewhere, nothing when quiet. While one exists,
/// the first SIGINT or SIGTERM sets progress.stop (tools/signals.hpp). The destructor ends the line.
struct ProgressDisplay {
  ProgressDisplay(Progress& progress_in, const std::string& label_in, bool quiet)
      : progress(progress_in),
        label(visible(label_in)),
        terminal(isatty(STDERR_FILENO) == 1),
        stop_on_signal(progress.stop) {
    try {
      if (!quiet) timer = std::thread([this] { watch(); });
    } catch (const std::system_error&) {  // then nothing is shown
    }
  }
  ~ProgressDisplay() {
    {
      const std::lock_guard lock(mutex);
      finished = true;
    }
    wake.notify_all();
    if (timer.joinable()) timer.join();
    if (drawn) std::fputs("\r\033[K", stderr);
  }

  void watch() {
    const auto period = terminal ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, period, [this] { return finished; })) show();
  }

  void show() try {
    const std::string text = status();
    if (!terminal) {
      std::fprintf(stderr, "%s\n", text.c_str());
      return;
    }
    constexpr std::size_t kBar = 30;
    const std::size_t width = terminal_width();
    const bool room = width > text.size() + kBar + 4;
    const std::string line = room ? bar(progress.share(), kBar) + ' ' + text : text.substr(0, width - 1);
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    drawn = true;
  } catch (const std::bad_alloc&) {  // the next time, perhaps
  }

  std::string status() const {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    std::string text = label + ": ";
    if (const double part = progress.share(); part > 0) {
      text += std::to_string(static_cast<int>(part * 100)) + "%, " + duration_text(elapsed) + " elapsed, " +
              duration_text(elapsed * (1 - part) / part) + " left";
    } else {
      text += duration_text(elapsed) + " elapsed";
    }
    if (progress.stop.load()) text += " (stopping)";
    return text;
  }

  Progress& progress;
  const std::string label;
  const bool terminal;
  const Clock::time_point start = Clock::now();
  StopOnSignal stop_on_signal;
  std::mutex mutex;
  std::condition_variable wake;
  bool finished = false;  ///< guarded by mutex
  bool drawn = false;     ///< whether a bar is on the terminal; belongs to the timer thread until it is
                          ///< joined
  std::thread timer;
};

}  // namespace

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
