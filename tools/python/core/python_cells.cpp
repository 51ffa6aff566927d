#include "tools/python/core/python_cells.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "analysis/asked/asked_cells.hpp"
#include "policies/builtin.hpp"

namespace nb = nanobind;

namespace kvsim::python {

AskedCells::AskedCells(const std::vector<std::string>& policies, const std::vector<std::string>& budgets,
                       const nb::list& written)
    : registry_(policy::builtin()) {
  for (const nb::handle given : written) registry_.add(policy_spec(given, failures_));
  const auto note = [this](const std::string& text) { notes_.push_back(text); };
  cells_ = analysis::cells_of(analysis::asked_policies(policies, registry_, note),
                              analysis::asked_budgets(budgets, note));
}

const sim::Cell& AskedCells::at(std::size_t index) const {
  if (index >= cells_.size()) throw nb::index_error();
  return cells_[index];
}

void bind_cells(nb::module_& module) {
  nb::class_<AskedCells>(module, "Cells", "Policies at budgets; budgets outside, policies inside.")
      .def(nb::init<const std::vector<std::string>&, const std::vector<std::string>&, const nb::list&>(),
           nb::arg("policies"), nb::arg("budgets"), nb::arg("written"))
      .def("__len__", [](const AskedCells& asked) { return asked.cells().size(); })
      .def("policy", [](const AskedCells& asked, std::size_t i) { return asked.at(i).composition.name; })
      .def("budget", [](const AskedCells& asked, std::size_t i) { return asked.at(i).budget.text; })
      .def_prop_ro("notes", &AskedCells::notes);
}

}  // namespace kvsim::python
