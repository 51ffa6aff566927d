#pragma once
#include <string>

namespace kvsim::tools {

/// Tells the front end what a person should know although nothing failed.
void note(const std::string& text);

}  // namespace kvsim::tools
