#include "tools/options/named_command.hpp"

#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::tools {

std::vector<std::string> command_names(Command command) {
  std::vector<std::string> names;
  for (const Command& below : command.subcommands()) names.push_back(below.name());
  return names;
}

Command named_command(Command root, const std::vector<std::string>& names) {
  Command found = root;
  for (const std::string& name : names) {
    std::optional<Command> next;
    for (const Command& below : found.subcommands())
      if (below.name() == name) next = below;
    if (!next)
      usage_error("unknown command " + in_quotes(name), found.full_name(),
                  suggestion(name, command_names(found)));
    found = *next;
  }
  return found;
}

}  // namespace kvsim::tools
