#pragma once
/// What python_module.cpp makes the module of.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds the class Records: columns as NumPy arrays or lists, an Arrow stream, pickling.
void bind_records(nanobind::module_& module);
/// Adds the class OpenTrace, and read_decisions(path).
void bind_traces(nanobind::module_& module);
/// Adds run(arguments, policies, progress) -> Answer. The command runs in a thread of its own without the
/// interpreter's lock; the calling thread follows it, so that Ctrl-C ends it and `progress(label, share)` is
/// called now and then.
void bind_commands(nanobind::module_& module);
/// Adds parse_workload(text, path), the classes Item, Stream and Answers.
void bind_answers(nanobind::module_& module);
/// Adds the class CellCaches (sim/loop/cell_caches.hpp).
void bind_caches(nanobind::module_& module);

}  // namespace kvsim::python
