#include "tools/mpi/program.hpp"
#include "tools/terminal.hpp"

int kvsim::tools::run_program(const std::vector<std::string>& arguments) {
  return run_at_terminal(arguments);
}
