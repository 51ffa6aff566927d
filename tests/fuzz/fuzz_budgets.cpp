// Any text either is a list of budgets or is refused as a usage error, and each budget's own text is that
// budget.
#include <cmath>

#include "sim/replay/budget.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_budgets {
namespace {

void read(std::string_view input) {
  for (const sim::Budget& budget : sim::parse_budgets(input)) {
    require(std::isfinite(budget.value) && budget.value > 0, "a budget is a positive number");
    const sim::Budget again = sim::parse_budget(budget.text);
    require(again.unit == budget.unit && again.value == budget.value && again.text == budget.text,
            "a budget's text is that budget");
  }
}

const Registered kTarget({"budgets", {ErrorKind::usage}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_budgets
