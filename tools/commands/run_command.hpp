#pragma once
/// The kvsim command as a function.
#include <span>
#include <string>

namespace kvsim::tools {

/// Runs what `arguments` ask for, the words of a command line behind its first, and speaks to front_end().
/// Throws Error, std::bad_alloc and std::length_error as the subcommands do; words that make no command are
/// Error(usage).
void run_command(std::span<const std::string> arguments);

}  // namespace kvsim::tools
