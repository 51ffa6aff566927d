#pragma once
/// Passes data that a device copies out to the observer, in order, on a thread of its own, while the device
/// continues.
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "traces/model/cuda/cuda_device.hpp"

namespace kvsim::model::cuda {

/// A ring of pinned buffers. A slow observer makes the model wait instead of growing the memory.
class HandOver {
 public:
  using Show = std::function<void(const std::byte* data)>;

  /// At most `slots` pieces are in memory at a time; `bytes` are set aside for each now, because that takes
  /// longer than a copy. `device` is the current device of the calling thread.
  HandOver(std::size_t slots, std::uint64_t bytes, unsigned device);
  /// Waits for copies in progress; shows no further pieces.
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Whether begin() would wait.
  bool full() const;
  /// Returns the buffer for the next piece, of `bytes`; waits for a free slot. Rethrows the exception of an
  /// earlier show.
  std::byte* begin(std::uint64_t bytes);
  /// Calls `show` with the piece once `stream` has done all work enqueued so far.
  void submit(const Stream& stream, Show show);
  /// Waits until all pieces are shown. Rethrows the exception of a show.
  void drain();
  /// Drops the pieces that are not shown yet and waits until no copy or show is in progress. Call it after an
  /// error.
  void abandon() noexcept;

 private:
  struct Slot {
    PinnedBytes memory;
    Event copied;
    Show show;
  };

  static std::vector<Slot> slots_with(std::size_t slots, std::uint64_t bytes);
  void work(unsigned device) noexcept;
  void show_one(Slot& slot, bool wanted) noexcept;
  void rethrow();

  std::vector<Slot> slots_;
  // Pieces are numbered; piece i lies in slot i modulo the number of slots. Only the model's thread submits.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t submitted_ = 0, shown_ = 0;
  bool wanted_ = true, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last member: it uses all of the above
};

}  // namespace kvsim::model::cuda
