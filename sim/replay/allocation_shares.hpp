#pragma once
/// Turns what an allocation decides on some runs into a form that applies to others: XKV's sampling (arXiv
/// 2412.05896), for any allocation. Prompts differ in length, so an allocation that splits a given total is
/// averaged as shares; one that also decides the total is averaged as tokens, as in the paper.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// The tokens that a cell's allocation gives each lane.
struct AllocatedTokens {
  std::string skipped;                           ///< why the cell cannot run on this trace; empty: it can
  std::vector<std::vector<std::size_t>> tokens;  ///< [layers][KV heads]; empty when skipped
};

/// Returns one entry per cell of `request`; a lane that never evicts counts as the prompt. One pass over the
/// prompt serves all cells. Throws as replay() does.
std::vector<AllocatedTokens> allocated_tokens(const trace::Sequence& sequence, const Request& request,
                                              Progress& progress);

/// Returns [layers][KV heads]: the tokens of each lane above the eviction's floor, as a share of those of all
/// lanes (equal shares if there are none). An allocation that has its own total gives these tokens themselves
/// instead. A lane that never evicts counts as the prompt. `request` holds one cell. Throws as replay() does,
/// and Error(usage) with the reason when the cell cannot run on this trace.
std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress);

/// Returns which of `n` runs are sampled: round(share * n), at least one, drawn by `seed`, in ascending
/// order. The sample of a larger share contains that of a smaller one.
std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed);

}  // namespace kvsim::sim
