#pragma once
/// Runs work that may crash in a process of its own, and lets it die of the first access past the end of a
/// block.
#include <array>
#include <functional>
#include <string>
#include <vector>

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

/// Where a shared library keeps the addresses of the functions by which it allocates; by them a process can
/// be let die of the first access past the end of a block that the library allocated.
///
/// Most such accesses crash nothing by themselves: they hit other blocks of the heap, and what the library
/// then returns depends on what lies there. Here every block ends where 64 KiB of memory begin that nothing
/// may touch. Only the library's own calls of malloc, calloc, realloc and free are diverted, in the table of
/// addresses through which a shared library calls what others define; the rest of the process allocates as
/// before. Meant for a forked copy that finds out whether the library survives its input.
class AllocationCalls {
 public:
  /// Those of the library that defines `function`. Takes locks of the dynamic linker: not for a copy of a
  /// process that had other threads when it was forked.
  explicit AllocationCalls(const void* function);

  /// Whether the library allocates and frees through such addresses. One that is linked statically, into a
  /// program without such a table, does not.
  bool found() const;

  /// From now on the library gets guarded blocks, as many as fit into 320 MiB of address space (each takes at
  /// least 68 KiB), and ordinary ones beyond. Blocks that it got before stay ordinary ones. Does nothing
  /// unless found(); cannot be undone, and the process must have one thread.
  void guard() const;

 private:
  std::array<std::vector<void**>, 4> places_;  // of malloc, calloc, realloc and free
};

}  // namespace kvsim
