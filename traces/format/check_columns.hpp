#pragma once
/// Whether stored column statistics can be what they claim, and are.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

/// One layer's, every query head: a sum is at most the number of queries that see the key, a sum of squares
/// at most the sum, and the sums add up to the number of queries. Where the trace has all counted queries, as
/// many heads from the first on as `work` multiplications allow are recomputed and compared. Returns how
/// many; appends what is wrong to `problems`.
std::uint32_t check_columns(const Source& source, std::uint32_t layer, std::uint64_t work,
                            std::vector<std::string>& problems, Progress& progress);

}  // namespace kvsim::trace
