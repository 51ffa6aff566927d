#pragma once
/// What a device copies out, shown by a thread of its own, in order, while the device works on.
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "traces/model/cuda/cuda_device.hpp"

namespace kvsim::model::cuda {

/// A ring of pinned buffers: whoever shows too slowly makes the model wait, never the memory grow.
class HandOver {
 public:
  using Show = std::function<void(const std::byte* data)>;

  /// At most `slots` pieces lie in memory at a time. `device` is that of the calling thread.
  HandOver(std::size_t slots, unsigned device);
  /// Waits for what is being copied; shows no more.
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Whether begin() will have to wait.
  bool full() const;
  /// Where the next piece, of `bytes`, is to be copied; waits for a place. Throws what showing an earlier
  /// piece threw.
  std::byte* begin(std::uint64_t bytes);
  /// The piece is there once `stream` has done what was enqueued so far; it is shown then.
  void submit(const Stream& stream, Show show);
  /// Waits until all is shown. Throws what showing threw.
  void drain();
  /// Waits until nothing is at work any more, and shows nothing from now on until then. Call it after an
  /// error.
  void abandon() noexcept;

 private:
  struct Slot {
    PinnedBytes memory;
    Event copied;
    Show show;
  };

  void work(unsigned device) noexcept;
  void show_one(Slot& slot, bool wanted) noexcept;
  void rethrow();

  std::vector<Slot> slots_;
  // Pieces are numbered; piece i lies in slot i modulo their number. Only the model submits.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t submitted_ = 0, shown_ = 0;
  bool wanted_ = true, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace kvsim::model::cuda
