#pragma once
/// Traces as NumPy arrays.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds the class OpenTrace, and read_decisions(path).
void bind_traces(nanobind::module_& module);

}  // namespace kvsim::python
