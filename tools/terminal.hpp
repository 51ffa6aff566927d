#pragma once
/// The kvsim command as people run it: results on standard output, what goes wrong as a message and an exit
/// code.
#include <optional>
#include <span>
#include <string>

#include "tools/launcher.hpp"

namespace kvsim::tools {

/// Runs what `arguments` ask for, the words behind the command's name, and returns the exit code. To be
/// called once in a process, after handle_signals(). `mpi`: what lets the command work
/// with the processes that were started together with it; none: nothing does.
int run_at_terminal(std::span<const std::string> arguments, const std::optional<Mpi>& mpi = {});

}  // namespace kvsim::tools
