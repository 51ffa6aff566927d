#pragma once
#include <string>

namespace kvsim::tools {

/// Prints what a person should know although nothing failed, as a line of standard error.
void note(const std::string& text);

}  // namespace kvsim::tools
