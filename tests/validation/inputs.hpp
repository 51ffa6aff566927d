#pragma once
/// The inputs from which our counterparts of published numbers are computed. Every number that was fitted to
/// measurements passes through here, so that changing it shows which results rest on the fit.
#include <set>
#include <string>

#include "policies/api/registry.hpp"
#include "sim/cost/machine.hpp"

namespace kvsim::cost {

class Inputs {
 public:
  explicit Inputs(const policy::Registry& policies) : policies_(&policies) {}
  /// Inputs in which all numbers fitted to `measurements` are multiplied by `factor`.
  Inputs(const policy::Registry& policies, std::string measurements, double factor)
      : policies_(&policies), measurements_(std::move(measurements)), factor_(factor) {}

  const policy::Registry& policies() const { return *policies_; }
  /// Return entries of the catalogue.
  Machine machine(const std::string& name);
  /// Returns a constant that was chosen so that those measurements come out.
  double fitted(const std::string& measurements, double value);
  /// Returns the measurements to which any returned number was fitted.
  const std::set<std::string>& asked_for() const { return asked_for_; }

 private:
  const policy::Registry* policies_;
  std::string measurements_{};
  double factor_ = 1;
  std::set<std::string> asked_for_{};
};

}  // namespace kvsim::cost
