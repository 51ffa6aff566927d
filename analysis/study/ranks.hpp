#pragma once
/// The processes that work on one study together, perhaps on many machines. A launcher such as mpirun starts
/// them alike; each has a number, its rank, and rank 0 leads. Everything that a study needs of the launcher
/// is here, so that only tools/ knows MPI.
#include <cstddef>
#include <optional>
#include <string>

namespace kvsim::analysis {

class Ranks {
 public:
  struct Message {
    std::size_t from = 0;
    std::string text;
  };

  virtual ~Ranks() = default;
  /// Of this process: 0 to size() - 1.
  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;
  /// The machine of this process.
  virtual std::string host() const = 0;
  /// How many threads this process can have without taking a processor from another rank of its machine.
  virtual unsigned threads() const = 0;

  // Messages between two ranks arrive in the order in which they were sent. One thread, always the same,
  // calls these two.
  virtual void send(std::size_t to, const std::string& text) = 0;
  /// A message that has arrived; none: there is none now. Does not wait.
  virtual std::optional<Message> receive() = 0;
};

}  // namespace kvsim::analysis
