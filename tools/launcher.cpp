#include "tools/launcher.hpp"

#include <algorithm>
#include <cstdlib>

namespace kvsim::tools {
namespace {

std::size_t number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
}

}  // namespace

std::size_t launched_processes() {
  // Open MPI's mpirun, other mpiruns, and srun where it starts MPI (otherwise its tasks are no ranks).
  const bool srun = std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
  return std::max({std::size_t{1}, number_in("OMPI_COMM_WORLD_SIZE"), number_in("PMI_SIZE"),
                   srun ? number_in("SLURM_STEP_NUM_TASKS") : 0});
}

}  // namespace kvsim::tools
