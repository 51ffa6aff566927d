#pragma once
/// What an allocation decides on some runs, in a form that applies to others: XKV's sampling (arXiv
/// 2412.05896), for any allocation. Prompts differ in length, so of rules that split a budget shares are
/// averaged; of rules that decide the total too, tokens, as the paper does.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// What a cell's allocation gave to each lane.
struct AllocatedTokens {
  std::string skipped;                           ///< why the cell cannot run on this trace; empty: it can
  std::vector<std::vector<std::size_t>> tokens;  ///< [layers][KV heads]; empty when skipped
};

/// One per cell of `request`; a lane that never evicts counts as the prompt. One pass over the prompt serves
/// all cells. Throws as replay() does.
std::vector<AllocatedTokens> allocated_tokens(const trace::Sequence& sequence, const Request& request,
                                              Progress& progress);

/// Per lane, [layers][KV heads]: its tokens above the eviction's floor, over all lanes' (equal when there are
/// none) unless the allocation has its own total: then they are the tokens. A lane that never evicts counts
/// as the prompt. `request` holds one cell. Throws as replay() does, and Error(usage) with the reason when
/// the cell cannot run on this trace.
std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress);

/// Which of `n` runs are sampled: round(share * n), at least one, drawn by `seed`, in ascending order. A
/// larger share of the same runs adds to the sample.
std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed);

}  // namespace kvsim::sim
