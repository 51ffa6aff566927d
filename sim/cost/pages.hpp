#pragma once
/// Pages of tokens.
#include <cstdint>

namespace kvsim::cost {

/// Returns ceil(tokens / page).
std::uint64_t pages_of(std::uint64_t tokens, std::uint64_t page);

/// Returns the least power of two that is at least `tokens`.
std::uint64_t power_of_two(std::uint64_t tokens);

/// Returns the expected share of pages that become free when a share of the tokens is evicted at random,
/// without compaction: evicted^page.
double freed_page_share(double evicted, std::uint64_t page);

/// vAttention: returns the number of tokens whose K (or V) of one layer fill one page of virtual memory,
/// `page_bytes / (heads * dim
/// * element_bytes)`; throws Error(usage) if a token does not fit a page.
std::uint64_t tokens_per_page(std::uint64_t page_bytes, std::uint64_t local_kv_heads, std::uint64_t head_dim,
                              std::uint64_t element_bytes);

}  // namespace kvsim::cost
