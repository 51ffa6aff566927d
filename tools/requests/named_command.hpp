#pragma once
/// Commands by their names, as people say them after `kvsim help` and `kvsim man`.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvsim::tools {

/// {"cost", "fit"} is the command `kvsim cost fit`, nothing is `root`. Throws Error(usage) with the nearest
/// names.
const CLI::App& named_command(const CLI::App& root, const std::vector<std::string>& names);

/// Names of the commands that `app` has.
std::vector<std::string> command_names(const CLI::App& app);

}  // namespace kvsim::tools
