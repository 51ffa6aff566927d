// What stands in the place of this room where kvsim was built without it.
#include "sim/base/error.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

/// A command that takes any words and says how to have it.
void add_missing(Command parent, const std::string& name) {
  Command command = parent.add_subcommand(name, "Not in this build: it needs -DKVSIM_REQUESTS=ON", "");
  command.allow_extras();
  command.callback([command] {
    usage_error(
        "is not in this build. cmake --preset release -DKVSIM_REQUESTS=ON && cmake --build --preset release "
        "--target kvsim makes one that has it.",
        command.full_name());
  });
}

}  // namespace

void add_requests_command(Command app) {
  add_missing(app, "requests");
}

void add_cost_break_even(Command cost) {
  add_missing(cost, "break-even");
}

}  // namespace kvsim::tools
