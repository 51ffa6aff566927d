#pragma once
/// External fragmentation has no formula, so it is simulated: requests enter and leave a memory of bounded
/// size.
#include <cstdint>
#include <span>

namespace kvsim::cost {

/// Ways to give memory to sequences whose final length is not known in advance.
enum class Allocator {
  longest,  ///< max_tokens each, from the start
  buddy,    ///< the next power of two of the final length
  exact,    ///< the final length, known by an oracle
  paged,    ///< pages as they fill
};

/// Shares of reserved memory.
struct Fragmentation {
  double used = 0;      ///< tokens present
  double reserved = 0;  ///< slots of tokens still to come
  double internal = 0;  ///< slots that no token will take
};

/// One served sequence: its prompt and what it generates.
struct Request {
  std::uint64_t prompt = 0, generated = 0;
};

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
/// pool. Throws Error(usage) for pages of no tokens, a request above max_tokens (`longest`) or above what the
/// empty pool holds, when no request generates anything, and when none ever waits.
PoolUse pool_use(Allocator allocator, std::span<const Request> requests, std::uint64_t slots,
                 std::uint64_t max_tokens, std::uint64_t page);

}  // namespace kvsim::cost
