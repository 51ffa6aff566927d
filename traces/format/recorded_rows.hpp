#pragma once
/// Attention rows that a trace file stores, in place of queries that it lacks.
#include <cstdint>

#include "traces/format/sequence.hpp"

namespace kvsim::trace {

/// Whether the trace holds queries of any token: not if its q_policy is `none`.
bool holds_queries(const Header& header);

/// Returns the first position from which every later one, up to the end, has its query or its attention row
/// stored.
std::uint64_t first_row(const Sequence& sequence);

/// Reads the stored attention rows of a query head at positions [first, first + n), all at or after
/// first_row() and before first_query(), into `out`, each `stride` floats behind the one before: zeros stand
/// where nothing is stored, and reach to `stride`. Throws Error(input) on damage: numbers that are negative
/// or not finite.
void read_recorded_rows(const Sequence& sequence, std::uint32_t layer, std::uint32_t query_head,
                        std::uint64_t first, std::uint64_t n, float* out, std::uint64_t stride);

}  // namespace kvsim::trace
