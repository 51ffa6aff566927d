#pragma once
/// What long work tells whoever watches: workers bump a counter per chunk (never per token) and look whether
/// they should stop; a display reads it from its own thread.
#include <atomic>
#include <cstdint>

#include "sim/base/error.hpp"

namespace kvsim {

struct Progress {
  std::atomic<std::uint64_t> total{0};
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> stop{false};

  void advance(std::uint64_t amount = 1) { done.fetch_add(amount, std::memory_order_relaxed); }
  /// Throws Error(interrupted) once `stop` is set. Call between chunks.
  void check() const {
    if (stop.load(std::memory_order_relaxed)) throw Error(ErrorKind::interrupted, "interrupted");
  }
};

}  // namespace kvsim
