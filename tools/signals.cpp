#include "tools/signals.hpp"

#include <unistd.h>

#include <iostream>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/interruption.hpp"

namespace kvsim::tools {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};
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
  each_signal(interrupt, static_cast<int>(SA_RESTART));
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
