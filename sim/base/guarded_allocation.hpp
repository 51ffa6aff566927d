#pragma once
/// Lets a process die of the first access past the end of a block that a library allocated.
///
/// Most such accesses crash nothing by themselves: they hit other blocks of the heap, and what the library
/// then returns depends on what lies there. Here every block ends where 64 KiB of memory begin that nothing
/// may touch. Only the library's own calls of malloc, calloc, realloc and free are diverted, in the table of
/// addresses through which a shared library calls what others define; the rest of the process allocates as
/// before. Meant for a forked copy (isolated_run.hpp) that finds out whether the library survives its input.
#include <array>
#include <vector>

namespace kvsim {

/// Where a shared library keeps the addresses of the functions by which it allocates.
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
