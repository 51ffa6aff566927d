#pragma once
/// Evictions whose score is written in Python (kvsim.ScorePolicy). All else is that of
/// policies/api/score_policy.hpp, so they compose, sweep and run beside built-in ones as any other.
#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <string>

#include "policies/api/spec.hpp"

namespace kvsim::python {

/// The first exception that a policy written in Python has thrown during a run.
class PolicyFailures {
 public:
  /// Keeps it, and throws Error(usage) that ends the run. Takes the interpreter's lock.
  [[noreturn]] void keep(const std::string& where, nanobind::python_error& error);
  /// Throws PolicyError with that exception as its cause; nothing if there is none. With the interpreter's
  /// lock.
  void raise();

 private:
  std::mutex mutex_;
  std::string where_;
  nanobind::object exception_;
};

/// The spec of a subclass of kvsim.ScorePolicy, from what its `_declaration()` says. `failures` must outlive
/// what it makes.
policy::PolicySpec score_policy_spec(nanobind::handle written, PolicyFailures& failures);

/// Adds the classes Prompt and Step, which are handed to policies.
void bind_score_policies(nanobind::module_& module);

}  // namespace kvsim::python
