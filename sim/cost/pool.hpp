#pragma once
/// External fragmentation has no formula, so it is simulated: requests enter and leave a memory of bounded
/// size.
#include <cstdint>
#include <span>

#include "sim/cost/pages.hpp"

namespace kvsim::cost {

/// Means over the steps of a pool in which a request waits for room: only a full memory shows what an
/// allocator wastes. The four shares add up to 1.
struct PoolUse {
  Fragmentation shares{};
  double external = 0;            ///< free, but not for the request that waits: in pieces, or too little
  double running = 0;             ///< requests at a time
  std::uint64_t steps = 0;        ///< steps in which a request waits
  std::uint64_t preemptions = 0;  ///< paged: how often a request gave its pages back and started again
};

/// Continuous batching: requests enter in order, each as soon as its memory can be reserved; every step each
/// running request gains a token; finished requests leave. `longest` and `exact` take the lowest gap that is
/// long enough, `buddy` the lowest that is aligned to its size. When pages run out, the request that came
/// last is preempted and waits at the head of the queue, to recompute its tokens. `slots` are tokens of the
/// pool. Throws Error(usage) as fragmentation(), for a request that the empty pool cannot hold, and when no
/// request ever waits.
PoolUse pool_use(Allocator allocator, std::span<const Request> requests, std::uint64_t slots,
                 std::uint64_t max_tokens, std::uint64_t page);

}  // namespace kvsim::cost
