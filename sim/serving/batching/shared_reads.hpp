#pragma once
/// Hydragen (Juravsky et al. 2024, arXiv 2402.05099): a decode step of sequences with common prefixes reads
/// each common block once, for all of them together, and merges the partial results.
#include <cstdint>
#include <span>

#include "sim/prefix/prefix_tree.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// Of one layer and step.
struct SharedReads {
  std::uint64_t separate_tokens = 0;  ///< read if every sequence reads its own
  std::uint64_t shared_tokens = 0;    ///< read if common blocks are read once
  /// Partial results that are written and read: one per sequence and level of the tree on its path, where a
  /// level is a run of blocks that the same sequences have.
  std::uint64_t partials = 0;

  double ratio() const { return static_cast<double>(separate_tokens) / static_cast<double>(shared_tokens); }
};

/// Counts for sequences that have the whole prompts of `running` and `private_tokens` tokens each behind
/// them, which nobody shares.
SharedReads shared_reads(const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                         std::span<const std::uint32_t> running, std::uint64_t private_tokens);

/// Bytes of one partial result of all heads: `query_heads` rows of `value_dim` numbers, and a logarithm of 32
/// bits for each.
constexpr std::uint64_t partial_bytes(std::uint64_t query_heads, std::uint64_t value_dim,
                                      std::uint64_t element_bytes) {
  return query_heads * (value_dim * element_bytes + 4);
}

}  // namespace kvsim::serving
