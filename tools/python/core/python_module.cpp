// kvsim._core: what the Python package calls. The package itself is tools/python/kvsim.
#include <nanobind/nanobind.h>

#include "tools/python/core/python_cells.hpp"
#include "tools/python/core/python_errors.hpp"
#include "tools/python/core/python_parts.hpp"
#include "tools/python/core/python_policies.hpp"

NB_MODULE(_core, module) {
  kvsim::python::bind_errors(module);
  kvsim::python::bind_records(module);
  kvsim::python::bind_traces(module);
  kvsim::python::bind_policies(module);
  kvsim::python::bind_score_policies(module);
  kvsim::python::bind_allocations(module);
  kvsim::python::bind_commands(module);
  kvsim::python::bind_cells(module);
  kvsim::python::bind_caches(module);
  kvsim::python::bind_answers(module);
}
