// The kvsim command.
#include <algorithm>
#include <string>
#include <vector>

#include "tools/signals.hpp"
#include "tools/terminal.hpp"
#if KVSIM_MPI
#include "tools/mpi/mpi_ranks.hpp"
#endif

// Other static objects take a while to be made, and a signal may come before main().
__attribute__((constructor(101))) static void handle_signals_first() {
  kvsim::tools::handle_signals();
}

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
#if KVSIM_MPI
  // MPI ends after the command has said everything: mpirun stops what is left of a job whose first process
  // has ended with an error.
  kvsim::tools::MpiJob job;
  return kvsim::tools::run_at_terminal(
      arguments, kvsim::tools::Mpi{kvsim::tools::mpi_version(), [&] { return job.join(); }});
#else
  return kvsim::tools::run_at_terminal(arguments);
#endif
}
