#include "tools/python/core/python_errors.hpp"

#include <nanobind/stl/string.h>

#include <array>

#include "sim/base/shortage.hpp"
#include "tools/printing/visible_text.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

/// By ErrorKind. Never destroyed: the interpreter may be gone by then.
std::array<PyObject*, 7> classes{};

PyObject* new_class(nb::module_& module, const char* name, PyObject* bases, const char* text) {
  PyObject* const made =
      PyErr_NewExceptionWithDoc(("kvsim." + std::string(name)).c_str(), text, bases, nullptr);
  if (made == nullptr) throw nb::python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

PyObject* policy_error = nullptr;

nb::object exception_of(nb::handle kind, const Error& error) {
  nb::object made = kind(tools::visible(error.what()));  // a traceback goes to a terminal
  made.attr("problem") = error.problem();
  made.attr("where") = error.where();
  made.attr("hint") = error.hint();
  return made;
}

void raise(const Error& error) {
  if (error.kind() == ErrorKind::interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return;
  }
  PyObject* const of_kind = classes[static_cast<std::size_t>(error.kind())];
  PyErr_SetObject(of_kind, exception_of(of_kind, error).ptr());
}

}  // namespace

void bind_errors(nb::module_& module) {
  PyObject* const base = new_class(module, "Error", PyExc_Exception,
                                   "What kvsim refuses. `problem`, `where` and `hint` are its parts.");
  const auto also = [&](const char* name, PyObject* other, const char* text) {
    const nb::tuple bases = nb::make_tuple(nb::handle(base), nb::handle(other));
    return new_class(module, name, bases.ptr(), text);
  };
  classes[static_cast<std::size_t>(ErrorKind::usage)] =
      also("UsageError", PyExc_ValueError, "What was asked for cannot be done.");
  classes[static_cast<std::size_t>(ErrorKind::input)] =
      also("InputError", PyExc_OSError, "A file cannot be read or written, or is damaged.");
  classes[static_cast<std::size_t>(ErrorKind::bug)] =
      also("BugError", PyExc_RuntimeError, "A mistake in kvsim.");
  classes[static_cast<std::size_t>(ErrorKind::different)] =
      new_class(module, "Different", base, "What was compared differs.");
  classes[static_cast<std::size_t>(kShortage)] =
      also("ShortageError", PyExc_MemoryError, "The machine is short of memory, threads or open files.");
  policy_error = new_class(module, "PolicyError", base,
                           "A policy written in Python went wrong; __cause__ is its own exception.");
  module.def(
      "refuse",
      [](const std::string& problem, const std::string& where, const std::string& hint) {
        usage_error(problem, where, hint);
      },
      nb::arg("problem"), nb::arg("where"), nb::arg("hint"), "Raises UsageError.");
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          raise(error);
        }
      },
      nullptr);
}

void throw_policy_error(const Error& error, nb::handle cause) {
  nb::object made = exception_of(policy_error, error);
  made.attr("__cause__") = cause;
  PyErr_SetObject(policy_error, made.ptr());
  throw nb::python_error();
}

}  // namespace kvsim::python
