#pragma once
/// Results as Python sees them.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds the class Records: columns as NumPy arrays or lists, an Arrow stream, pickling.
void bind_records(nanobind::module_& module);

}  // namespace kvsim::python
