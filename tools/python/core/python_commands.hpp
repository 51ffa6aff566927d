#pragma once
/// Commands as functions of Python.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds run(arguments, policies, progress) -> Answer. The command runs in a thread of its own without the
/// interpreter's lock; the calling thread follows it, so that Ctrl-C ends it and `progress(label, share)` is
/// called now and then.
void bind_commands(nanobind::module_& module);

}  // namespace kvsim::python
