#pragma once
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// Adds `show`: the text of a trace, and what policies have dropped of it.
void add_show(Command trace);

}  // namespace kvsim::tools
