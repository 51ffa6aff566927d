// The program of the kvsim command with ranks of MPI. It alone is linked with MPI: the Python module has
// none.
#include <sched.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/study/ranks.hpp"
#include "sim/base/error.hpp"
#include "tools/launcher.hpp"
#include "tools/mpi/program.hpp"
#include "tools/terminal.hpp"

namespace kvsim::tools {
namespace {

namespace mpi = boost::mpi;

constexpr int kTag = 0;

/// The processors that this process may use, a bit each.
std::vector<std::uint64_t> own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<std::uint64_t> out(CPU_SETSIZE / 64);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) out[i / 64] |= std::uint64_t{1} << i % 64;
  return out;
}

std::size_t number_of(const std::vector<std::uint64_t>& processors) {
  std::size_t out = 0;
  for (const std::uint64_t word : processors) out += std::bitset<64>(word).count();
  return out;
}

/// This rank's share of the processors that the ranks of its machine may use together, and no more than it
/// may use itself: launchers bind ranks to processors of their own, or let all use all of them.
unsigned fair_threads(const mpi::communicator& world) {
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &here);
  const mpi::communicator machine(here, mpi::comm_take_ownership);
  const std::vector<std::uint64_t> own = own_processors();
  std::vector<std::uint64_t> all(own.size());
  mpi::all_reduce(machine, own.data(), static_cast<int>(own.size()), all.data(),
                  mpi::bitwise_or<std::uint64_t>());
  const std::size_t share = number_of(all) / static_cast<std::size_t>(machine.size());
  return static_cast<unsigned>(std::max<std::size_t>(1, std::min(share, number_of(own))));
}

class MpiRanks final : public analysis::Ranks {
 public:
  std::size_t rank() const override { return static_cast<std::size_t>(world_.rank()); }
  std::size_t size() const override { return static_cast<std::size_t>(world_.size()); }
  std::string host() const override { return mpi::environment::processor_name(); }
  unsigned threads() const override { return threads_; }

  void send(std::size_t to, const std::string& text) override {
    world_.send(static_cast<int>(to), kTag, text);
  }
  std::optional<Message> receive() override {
    const auto waiting = world_.iprobe(mpi::any_source, kTag);
    if (!waiting) return std::nullopt;
    Message out;
    out.from = static_cast<std::size_t>(waiting->source());
    world_.recv(waiting->source(), kTag, out.text);
    return out;
  }

 private:
  /// Only the thread that has started MPI calls it. An exception is no reason to kill the job: rank 0 ends
  /// it.
  mpi::environment environment_{mpi::threading::funneled, false};
  mpi::communicator world_;
  unsigned threads_ = fair_threads(world_);
};

/// "Open MPI v4.1.4". Needs no MPI_Init.
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all = text.data();
  return all.substr(0, all.find_first_of(",\n"));
}

/// The part of this process in an MPI job, which begins here. Throws Error(usage) when MPI does not know the
/// processes that were started together.
analysis::Ranks* join(std::unique_ptr<analysis::Ranks>& ranks) {
  if (!ranks) ranks = std::make_unique<MpiRanks>();
  if (ranks->size() != launched_processes())
    usage_error("the launcher started " + std::to_string(launched_processes()) + " processes, and MPI sees " +
                    std::to_string(ranks->size()),
                "MPI",
                "Start them with the mpirun of the MPI that kvsim was built with, or srun --mpi=pmix.");
  return ranks.get();
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  // MPI ends after the command has said everything: mpirun stops what is left of a job whose first process
  // has ended with an error.
  std::unique_ptr<analysis::Ranks> ranks;
  return run_at_terminal(arguments, Mpi{mpi_version(), [&] { return join(ranks); }});
}

}  // namespace kvsim::tools
