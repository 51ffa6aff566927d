#pragma once
/// kvsim's errors as Python's exceptions.
#include <nanobind/nanobind.h>

#include "sim/base/error.hpp"

namespace kvsim::python {

/// Adds Error and what derives from it, and lets every kvsim::Error that reaches Python become one of them,
/// with the attributes `problem`, `where` and `hint`:
///   UsageError   (also a ValueError)    what was asked for cannot be done
///   InputError   (also an OSError)      a file cannot be read or written
///   PolicyError                         a policy written in Python went wrong; its exception is __cause__
///   BugError     (also a RuntimeError)  a mistake in kvsim
/// An interruption is a KeyboardInterrupt.
void bind_errors(nanobind::module_& module);

/// Throws PolicyError with the parts of `error` and with `cause` as __cause__. With the interpreter's lock.
[[noreturn]] void throw_policy_error(const Error& error, nanobind::handle cause);

}  // namespace kvsim::python
