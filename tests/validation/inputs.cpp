#include "tests/validation/inputs.hpp"

namespace kvsim::cost {

Machine Inputs::machine(const std::string& name) {
  const Machine machine = find_machine(name);
  for (const Fit& fit : machine.fitted) asked_for_.insert(fit.measurements);
  return scaled(machine, measurements_, factor_);
}

double Inputs::fitted(const std::string& measurements, double value) {
  asked_for_.insert(measurements);
  return measurements == measurements_ ? factor_ * value : value;
}

}  // namespace kvsim::cost
