#pragma once
#include <span>
#include <string>

namespace kvsim::tools {

/// Notes (sim/base/inputs.hpp) the files that a command line names other than as outputs, and those of
/// studies whose folders it names, so that an output that is one of them is refused before any work.
void note_named_inputs(std::span<const std::string> arguments);

}  // namespace kvsim::tools
