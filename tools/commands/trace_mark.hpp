#pragma once
/// kvsim trace mark: what parts of a recorded prompt are for.
#include <CLI/CLI.hpp>

namespace kvsim::tools {

/// Adds `mark` to the command `trace`.
void add_mark(CLI::App& trace);

}  // namespace kvsim::tools
