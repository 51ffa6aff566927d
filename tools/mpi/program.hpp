#pragma once
/// The program of the kvsim command, linked with MPI (with_mpi.cpp) or not (without_mpi.cpp).
#include <string>
#include <vector>

namespace kvsim::tools {

/// What run_at_terminal() returns, in an MPI job where the program can be part of one.
int run_program(const std::vector<std::string>& arguments);

}  // namespace kvsim::tools
