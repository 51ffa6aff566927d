#pragma once
/// Scripts that complete kvsim's command line in a shell.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

/// For ~/.local/share/bash-completion/completions/kvsim, or to be sourced.
std::string bash_completion(const CLI::App& root);
/// For a file _kvsim in a folder of $fpath, or to be sourced after compinit.
std::string zsh_completion(const CLI::App& root);

}  // namespace kvsim::tools
