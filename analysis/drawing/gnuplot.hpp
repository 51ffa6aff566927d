#pragma once
#include <string>

namespace kvsim::analysis {

/// What gnuplot writes to standard output for a script, byte for byte the same every time for svg. Personal
/// settings of the user are not read. Throws Error(usage) when there is no gnuplot, Error(bug) with gnuplot's
/// words when it does not understand the script.
std::string run_gnuplot(const std::string& script);

}  // namespace kvsim::analysis
