#pragma once
/// Runs work that may crash in a process of its own.
#include <functional>
#include <string>

namespace kvsim {

/// What became of isolated work.
struct IsolatedEnd {
  bool returned = false;  ///< false: its process died or was stopped by a limit
  std::string text;       ///< what the work returned, or how its process ended
  bool limited = false;   ///< this process may not have the memory that was to be the copy's
};

/// Runs `work` in a forked copy of this process and returns its text, of which at most 4 KiB are kept. The
/// copy has one thread: locks that other threads held at the fork stay locked in it. It may read open files,
/// allocate 1 GiB and compute for 60 seconds; it can open, write and start nothing, leaves no core file, and
/// ends with its parent. Throws Error(input) naming `where` if the system refuses a process, and
/// Error(interrupted) after a signal.
IsolatedEnd run_isolated(const std::function<std::string()>& work, const std::string& where);

}  // namespace kvsim
