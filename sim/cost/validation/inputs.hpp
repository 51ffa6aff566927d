#pragma once
/// What published numbers are computed from. Every number that was fitted to measurements passes through
/// here, so that what rests on a fit is found by changing it and need not be remembered.
#include <set>
#include <string>

#include "policies/api/registry.hpp"
#include "sim/cost/machine.hpp"

namespace kvsim::cost {

class Inputs {
 public:
  explicit Inputs(const policy::Registry& policies) : policies_(&policies) {}
  /// With what was fitted to those measurements multiplied by `factor`.
  Inputs(const policy::Registry& policies, std::string measurements, double factor)
      : policies_(&policies), measurements_(std::move(measurements)), factor_(factor) {}

  const policy::Registry& policies() const { return *policies_; }
  /// Of the catalogue.
  Machine machine(const std::string& name);
  /// A constant that was chosen so that those measurements come out.
  double fitted(const std::string& measurements, double value);
  /// Measurements to which anything was fitted that was handed out.
  const std::set<std::string>& asked_for() const { return asked_for_; }

 private:
  const policy::Registry* policies_;
  std::string measurements_{};
  double factor_ = 1;
  std::set<std::string> asked_for_{};
};

}  // namespace kvsim::cost
