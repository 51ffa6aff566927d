#pragma once
/// Scripts that complete kvsim's command line in a shell.
#include <string>

#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// For ~/.local/share/bash-completion/completions/kvsim, or to be sourced.
std::string bash_completion(Command root);
/// For a file _kvsim in a folder of $fpath, or to be sourced after compinit.
std::string zsh_completion(Command root);

}  // namespace kvsim::tools
