#pragma once
/// The kvsim command as people run it: results on standard output, what goes wrong as a message and an exit
/// code.
#include <span>
#include <string>

namespace kvsim::tools {

/// Runs what `arguments` ask for, the words behind the command's name, and returns the exit code. To be
/// called once in a process, after handle_signals().
int run_at_terminal(std::span<const std::string> arguments);

}  // namespace kvsim::tools
