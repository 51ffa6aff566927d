#pragma once
/// External fragmentation, which no formula gives: a memory of bounded size is filled by requests that come
/// and go.
#include <cstdint>
#include <span>

#include "sim/cost/pages.hpp"

namespace kvsim::cost {

/// Of a pool, means over the steps in which a request waited for room: only a full memory says what an
/// allocator wastes. The four shares add up to 1.
struct PoolUse {
  Fragmentation shares{};
  double external = 0;            ///< free, but not for the request that waits: in pieces, or too little
  double running = 0;             ///< requests at a time
  std::uint64_t steps = 0;        ///< in which one waited
  std::uint64_t preemptions = 0;  ///< paged: how often a request gave its pages back and began anew
};

/// Continuous batching: requests enter in order, each as soon as its memory can be reserved; every step each
/// of those inside gains a token; who is done leaves. `longest` and `exact` take the lowest gap that is long
/// enough, `buddy` the lowest that is aligned to its size. When pages run out, who came last leaves and waits
/// at the head of the queue, to recompute what it had. `slots` are tokens of the pool. Throws Error(usage) as
/// fragmentation(), for a request that the empty pool cannot hold, and when nobody ever waits.
PoolUse pool_use(Allocator allocator, std::span<const Request> requests, std::uint64_t slots,
                 std::uint64_t max_tokens, std::uint64_t page);

}  // namespace kvsim::cost
