// The kvsim command.
#include <algorithm>
#include <string>
#include <vector>

#include "tools/mpi/program.hpp"
#include "tools/signals.hpp"

// Other static objects take a while to be made, and a signal may come before main().
__attribute__((constructor(101))) static void handle_signals_first() {
  kvsim::tools::handle_signals();
}

int main(int argc, char** argv) {
  return kvsim::tools::run_program(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
