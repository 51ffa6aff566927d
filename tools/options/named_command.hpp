#pragma once
/// Commands by their names, as people say them after `kvsim help` and `kvsim man`.
#include <string>
#include <vector>

#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// {"cost", "fit"} is the command `kvsim cost fit`, nothing is `root`. Throws Error(usage) with the nearest
/// names.
Command named_command(Command root, const std::vector<std::string>& names);

/// Names of the commands that `command` has.
std::vector<std::string> command_names(Command command);

}  // namespace kvsim::tools
