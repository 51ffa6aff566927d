// kvsim help: the same as --help.
#include <ostream>

#include "tools/commands/command.hpp"

namespace kvsim::tools {

void add_help_command(Command app) {
  const Command command = app.add_subcommand("help", "What a command does, and its options",
                                             "Examples:\n  kvsim help replay\n  kvsim help cost estimate\n");
  const auto names = std::make_shared<std::vector<std::string>>();
  command.add_option("COMMAND", *names, "", "Command, and its subcommand (default: all of kvsim)");
  command.callback([names, app] { front_end().results() << named_command(app, *names).help(); });
}

}  // namespace kvsim::tools
