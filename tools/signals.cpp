#include "tools/signals.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>
#include <system_error>

#include "sim/base/error.hpp"
#include "sim/base/interruption.hpp"
#include "sim/base/shortage.hpp"
#include "traces/model/input_file.hpp"

namespace kvsim::tools {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
constexpr int kCode = static_cast<int>(ErrorKind::interrupted);

std::atomic<std::atomic<bool>*> stop_flag{nullptr};
static_assert(std::atomic<std::atomic<bool>*>::is_always_lock_free,
              "a signal handler may touch nothing that locks");
bool terminal = false;  ///< whether standard error is one

void tell(std::string_view text) {
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void interrupt(int) {
  const bool again = interruption::seen.exchange(true);
  std::atomic<bool>* const flag = stop_flag.load();
  if (flag != nullptr) flag->store(true);
  if (flag != nullptr && !again && interruption::waits.load() == 0) return;
  interruption::remove_unfinished_files();
  if (flag != nullptr && terminal) tell("\r\033[K");  // a bar may stand there
  tell("kvsim: interrupted\n");
  ::_exit(kCode);
}

/// A file that was cut off while it was mapped ends here when its missing part is read.
extern "C" void cut_off(int signal, siginfo_t* info, void*) {
  const char* const file = model::mapped_file_at(info->si_addr);
  if (file == nullptr) {  // no file of ours
    std::signal(signal, SIG_DFL);
    return;
  }
  interruption::remove_unfinished_files();
  for (const char* text : {"kvsim: ", file,
                           ": was cut off while it was read\n"
                           "  Run the command again once nothing writes the file.\n"})
    tell(text);
  ::_exit(static_cast<int>(ErrorKind::input));
}

[[noreturn]] void lack() {
  interruption::remove_unfinished_files();
  tell("kvsim: out of memory, or no thread can be started\n");
  ::_exit(static_cast<int>(kShortage));
}

/// What nothing catches: memory that is lacking where nothing may throw, or before main() begins.
[[noreturn]] void lack_or_bug() {
  interruption::remove_unfinished_files();
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
        dynamic_cast<const std::system_error*>(&error) != nullptr)
      lack();
  } catch (...) {
  }
  std::abort();
}

void each_signal(void (*handler)(int), int flags) {
  struct sigaction action {
  }, before{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigfillset(&action.sa_mask);
  for (const int signal : kSignals) {
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void handle_signals() {
  terminal = ::isatty(STDERR_FILENO) == 1;
  std::set_terminate(lack_or_bug);
  ::on_exit(
      [](int code, void*) {
        if (code == -1) lack();  // libhdf5 ends the process so where it has no memory
      },
      nullptr);
  each_signal(interrupt, static_cast<int>(SA_RESTART));
  struct sigaction action {};
  action.sa_sigaction = cut_off;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int exit_code_after_signals(int code) {
  each_signal(SIG_IGN, 0);
  if (!interruption::seen.load() || code == kCode) return code;
  std::cerr << "kvsim: interrupted" << std::endl;
  return kCode;
}

StopOnSignal::StopOnSignal(std::atomic<bool>& stop) : outer_(stop_flag.exchange(&stop)) {
  if (interruption::seen.load()) stop.store(true);
}

StopOnSignal::~StopOnSignal() {
  stop_flag.store(outer_);
}

}  // namespace kvsim::tools
