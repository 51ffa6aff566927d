#pragma once
/// The parts that rows of hits are about.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/requests/hit_rows.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::analysis {

struct HitPartition {
  std::vector<std::string> names{};  ///< in the order in which parts are shown
  /// Of every request the index of its name; kNone: it is of no part. Empty for depths, which are parts of
  /// every prompt.
  std::vector<std::uint32_t> of{};
};

/// Throws Error(usage) where the trace has no such parts.
HitPartition partition(const requests::RequestTrace& trace, HitParts parts);

/// Depth 0 is the first block, depth i the blocks from 2^(i - 1) to below 2^i: the first of them.
constexpr std::uint64_t first_of_depth(std::size_t depth) {
  return depth == 0 ? 0 : std::uint64_t{1} << (depth - 1);
}

}  // namespace kvsim::analysis
