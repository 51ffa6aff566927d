#pragma once
/// What a launcher of parallel programs, such as mpirun or srun, tells the processes that it starts. It is
/// read from the environment, so that a kvsim that is started alone never starts MPI.
#include <cstddef>
#include <functional>
#include <string>

#include "analysis/study/ranks.hpp"

namespace kvsim::tools {

/// How many processes were started together with this one, itself included; 1: it was started alone.
std::size_t launched_processes();

/// The MPI that a program is linked with.
struct Mpi {
  std::string version;  ///< with its name
  /// Joins the processes that were started together. What it returns lives until the process is about to end.
  std::function<analysis::Ranks*()> join;
};

}  // namespace kvsim::tools
