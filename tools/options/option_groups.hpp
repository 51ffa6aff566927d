#pragma once
/// What is said of options wherever they are.
#include <string>
#include <vector>

#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// Puts options of one command into a group; those that it lacks are left out, and those
/// that it requires stay with the first.
void group_options(Command command, const std::string& group, const std::vector<std::string>& names);

/// Puts options that many commands have into the groups `Results` and `Run`, in `root` and all below.
void group_shared_options(Command root);

/// An option that names an output is refused without a name, instead of meaning nothing; in `root` and all
/// below.
void require_names_of_outputs(Command root);

}  // namespace kvsim::tools
