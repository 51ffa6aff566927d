#pragma once
/// Policies that decide over the caches of a model that runs in Python.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds the class CellCaches (sim/loop/cell_caches.hpp).
void bind_caches(nanobind::module_& module);

}  // namespace kvsim::python
