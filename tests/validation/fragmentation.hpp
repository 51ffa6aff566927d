#pragma once
/// What allocators leave unused in a full memory, by formula: what papers print, and what the pool of
/// sim/cost is held against.
#include "sim/cost/pool.hpp"

namespace kvsim::cost {

/// Returns averages over the requests' lifetimes, every request weighted by its decode steps and the slots it
/// reserves, as in a full memory under continuous batching; at step s a request holds prompt + s tokens.
/// `max_tokens` matters to `longest`, `page` to `paged`. Throws Error(usage) when no request generates
/// anything, and for
/// one above max_tokens.
Fragmentation fragmentation(Allocator allocator, std::span<const Request> requests, std::uint64_t max_tokens,
                            std::uint64_t page);

}  // namespace kvsim::cost
