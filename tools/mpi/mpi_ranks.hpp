#pragma once
/// Ranks of MPI. Only the program of the kvsim command is linked with it: the Python module has none.
#include <memory>
#include <string>

#include "analysis/study/ranks.hpp"

namespace kvsim::tools {

/// "Open MPI v4.1.4". Needs no MPI_Init.
std::string mpi_version();

/// The part of this process in an MPI job. MPI is started by join() and ended by the destructor, in which the
/// ranks wait for each other.
class MpiJob {
 public:
  MpiJob();
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  /// Call from the thread that calls the destructor. Throws Error(usage) when MPI does not know the processes
  /// that were started together.
  analysis::Ranks* join();

 private:
  std::unique_ptr<analysis::Ranks> ranks_;
};

}  // namespace kvsim::tools
