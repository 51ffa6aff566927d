#pragma once
/// Memory that pages and allocators leave unused.
#include <cstdint>
#include <span>

#include "sim/replay/replay.hpp"

namespace kvsim::cost {

/// Returns ceil(tokens / page).
std::uint64_t pages_of(std::uint64_t tokens, std::uint64_t page);

/// Returns the least power of two that is at least `tokens`.
std::uint64_t power_of_two(std::uint64_t tokens);

/// Slots and pages of a replayed lane whose tokens never move. This is a count, while memory_at() uses
/// expected numbers.
struct PageUse {
  std::uint64_t slots = 0;  ///< tokens held
  std::uint64_t pages = 0;  ///< pages with a token in them
};
/// Returns the use at a decode step (0: right after the prompt), with the token at position i in page i /
/// page. `lane` is in order of position, as a replay records it.
PageUse page_use(std::span<const sim::ResidentInterval> lane, std::uint32_t step, std::uint64_t page);
/// Returns the expected share of pages that become free when a share of the tokens is evicted at random,
/// without compaction: evicted^page.
double freed_page_share(double evicted, std::uint64_t page);

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
/// Returns averages over the requests' lifetimes, every request weighted by its decode steps and the slots it
/// reserves, as in a full memory under continuous batching; at step s a request holds prompt + s tokens.
/// `max_tokens` matters to `longest`, `page` to `paged`. Throws Error(usage) when no request generates
/// anything, and for
/// one above max_tokens.
Fragmentation fragmentation(Allocator allocator, std::span<const Request> requests, std::uint64_t max_tokens,
                            std::uint64_t page);

/// vAttention: returns the number of tokens whose K (or V) of one layer fill one page of virtual memory,
/// `page_bytes / (heads * dim
/// * element_bytes)`; throws Error(usage) if a token does not fit a page.
std::uint64_t tokens_per_page(std::uint64_t page_bytes, std::uint64_t local_kv_heads, std::uint64_t head_dim,
                              std::uint64_t element_bytes);

}  // namespace kvsim::cost
