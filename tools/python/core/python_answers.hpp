#pragma once
/// Rows of answers that a model gave in Python.
#include <nanobind/nanobind.h>

namespace kvsim::python {

/// Adds parse_workload(text, path), the classes Item, Stream and Answers.
void bind_answers(nanobind::module_& module);

}  // namespace kvsim::python
