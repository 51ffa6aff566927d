#pragma once
/// Bytes of the keys and values that lanes hold: as they come, or as a representation stores them.
#include <cstdint>
#include <optional>

#include "policies/api/composition.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost {

struct Storage {
  std::uint64_t element_bits = 16;  ///< of a number that is stored as it comes
  std::optional<policy::Part> representation{};
  bool together = false;  ///< the lanes of a layer are one unit of the representation
};

using policy::LaneTokens;

/// Returns what `lanes` lanes of a layer take, a sequence's tables included. A ledger knows no evictions
/// after the prompt: groups that have lost a token count as whole. Throws Error(usage) when it does not fit
/// 64 bits.
policy::Ledger stored_ledger(const Storage& storage, const Model& model, std::uint64_t lanes,
                             const LaneTokens& tokens);
/// Returns the whole bytes of it on the device; every unit is rounded up.
std::uint64_t stored_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                           const LaneTokens& tokens);
/// Returns the bytes that `empty` slots without a token add to it: what they would take with a token, and
/// nothing where full windows are coded at once and that saves more than the slots take.
std::uint64_t empty_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                          const LaneTokens& tokens, std::uint64_t empty);
/// Returns how many numbers of a lane are not stored as they come.
double coded_numbers(const Storage& storage, const Model& model, const LaneTokens& tokens);

// Pages of tokens.

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
