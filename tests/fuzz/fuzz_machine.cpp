// Any text either is a machine or is refused as an input error; an accepted one has rates that are valid in
// formulas, and is the same after writing and reading it again.
#include <cmath>

#include "sim/cost/machine.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_machine {
namespace {

void read(std::string_view input) {
  const cost::Machine machine = cost::parse_machine(input, "fuzz");
  for (const double rate : {machine.matrix_rate, machine.bandwidth})
    require(rate > 0 && std::isfinite(rate), "rates are positive");
  require(machine.memory > 0, "a machine has memory");
  require(machine.ceilings.compute > 0 && machine.ceilings.compute <= 1, "a ceiling is a share");
  const std::string canonical = cost::machine_text(machine);
  require(cost::machine_text(cost::parse_machine(canonical, "fuzz")) == canonical,
          "a machine written is read as it was");
}

const Registered kTarget({"machine", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_machine
