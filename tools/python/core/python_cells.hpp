#pragma once
/// What a run is asked for, from texts and from policies written in Python.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "sim/replay/replay.hpp"
#include "tools/python/core/python_policies.hpp"

namespace kvsim::python {

/// Policies at budgets. It owns what they refer to, so it must outlive what runs them.
class AskedCells {
 public:
  /// `written`: the classes that the texts name. Throws Error(usage) for what cannot be asked for.
  AskedCells(const std::vector<std::string>& policies, const std::vector<std::string>& budgets,
             const nanobind::list& written);

  /// Budgets outside, policies inside.
  const std::vector<sim::Cell>& cells() const { return cells_; }
  const sim::Cell& at(std::size_t index) const;
  const std::vector<std::string>& notes() const { return notes_; }

  /// Calls a function that may run policies written in Python. If one of them throws, that becomes
  /// PolicyError.
  template <class Run>
  auto run(Run function) {
    try {
      return function();
    } catch (const Error&) {
      failures_.raise();
      throw;
    }
  }

 private:
  PolicyFailures failures_;
  policy::Registry registry_;
  std::vector<sim::Cell> cells_;
  std::vector<std::string> notes_;
};

/// Adds the class Cells.
void bind_cells(nanobind::module_& module);

}  // namespace kvsim::python
