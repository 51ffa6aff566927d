#include "tools/mpi/mpi_ranks.hpp"
#include "tools/mpi/program.hpp"
#include "tools/terminal.hpp"

int kvsim::tools::run_program(const std::vector<std::string>& arguments) {
  // MPI ends after the command has said everything: mpirun stops what is left of a job whose first process
  // has ended with an error.
  MpiJob job;
  return run_at_terminal(arguments, Mpi{mpi_version(), [&] { return job.join(); }});
}
