#pragma once
/// Progress of long work: workers increment a counter per chunk (never per token) and check whether they
/// should stop; a display reads the counter from its own thread.
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "sim/base/error.hpp"

namespace kvsim {

struct Progress {
  std::atomic<std::uint64_t> total{0};
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> stop{false};

  /// For work in consecutive parts, each with its own total: the share of the whole that lies before the
  /// current part, and the share of that part.
  std::atomic<double> before{0}, part{1};

  void begin_part(double share_before, double share_of_part) {
    total = 0;
    done = 0;
    before = share_before;
    part = share_of_part;
  }
  /// Returns the finished share of the whole, from 0 to 1.
  double share() const {
    const std::uint64_t all = total.load(), by_now = done.load();
    const double of_part =
        all == 0 ? 0.0 : static_cast<double>(std::min(by_now, all)) / static_cast<double>(all);
    return before.load() + part.load() * of_part;
  }

  void advance(std::uint64_t amount = 1) { done.fetch_add(amount, std::memory_order_relaxed); }
  /// Throws Error(interrupted) once `stop` is set. Call between chunks.
  void check() const {
    if (stop.load(std::memory_order_relaxed)) throw Error(ErrorKind::interrupted, "interrupted");
  }
};

}  // namespace kvsim
