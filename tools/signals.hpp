#pragma once
/// SIGINT, SIGTERM and SIGHUP: the command ends with exit code 4 and leaves nothing half-written. Work that
/// watches a flag (StopOnSignal) stops by itself at the first signal. Everything else, waits for input, and a
/// second signal end the process at once: unfinished files are removed in the handler.
#include <atomic>

namespace kvsim::tools {

/// From here on signals are handled. One that the parent ignores (nohup, a job in the background) stays
/// ignored. Writing to a closed pipe or beyond the limit on file sizes becomes a failed write.
void handle_signals();

/// The exit code of a command that would end with `code`: 4 if a signal came. Later signals are ignored.
int exit_code_after_signals(int code);

/// While it exists, the first signal only sets `stop`. A signal that came before sets it at once.
class StopOnSignal {
 public:
  explicit StopOnSignal(std::atomic<bool>& stop);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  std::atomic<bool>* outer_;
};

}  // namespace kvsim::tools
