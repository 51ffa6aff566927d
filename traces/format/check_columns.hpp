#pragma once
/// Checks stored column statistics: the bounds that every sum of probabilities obeys, and a recomputation
/// from queries and keys.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

/// Checks one layer, every query head: a sum is at most the number of queries that see the key, a sum of
/// squares is at most the sum, and the sums add up to the number of queries. If the trace stores all counted
/// queries, recomputes and compares as many heads, from the first on, as `work` multiplications allow.
/// Returns the number of recomputed heads; appends what is wrong to `problems`.
std::uint32_t check_columns(const Source& source, std::uint32_t layer, std::uint64_t work,
                            std::vector<std::string>& problems, Progress& progress);

}  // namespace kvsim::trace
