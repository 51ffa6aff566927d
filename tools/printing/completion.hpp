#pragma once
/// Scripts that complete kvsim's command line in a shell.
#include <map>
#include <string>
#include <vector>

#include "tools/options/command_tree.hpp"
#include "tools/printing/command_line.hpp"

namespace kvsim::tools {

/// For ~/.local/share/bash-completion/completions/kvsim, or to be sourced.
std::string bash_completion(Command root);
/// For a file _kvsim in a folder of $fpath, or to be sourced after compinit.
std::string zsh_completion(Command root);

// What both completion scripts say of values.

/// What completes a value, as the scripts name it: "@policies", "@files", "@none", or words with spaces
/// between.
std::string value_name(const Completed& completed);

/// What may stand right behind a command's name, and what after other arguments.
std::string first_value(const DescribedCommand& command);
std::string later_value(const DescribedCommand& command);

/// Which options ("kvsim replay --policy") take which values: by value_name().
std::map<std::string, std::vector<std::string>> options_by_value(
    const std::vector<DescribedCommand>& commands);

/// One of the names, as `case` takes it.
std::string patterns(const std::vector<std::string>& names);

}  // namespace kvsim::tools
