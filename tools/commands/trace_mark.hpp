#pragma once
/// kvsim trace mark: what parts of a recorded prompt are for.
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// Adds `mark` to the command `trace`.
void add_mark(Command trace);

}  // namespace kvsim::tools
