#pragma once
/// Opens a trace file after checking its structure. Reads no payload, and allocates nothing by a size that
/// has not been checked.
#include <cstdint>
#include <memory>
#include <string>

#include "traces/format/source.hpp"

namespace kvsim::trace {

struct ReadOptions {
  bool allow_partial = false;                   ///< accept complete != 1
  std::uint64_t max_header_bytes = 1ULL << 30;  ///< limit for token lists, passes and text together
};

/// Throws Error(input) naming file and dataset when the file is missing, foreign, incomplete or hostile.
std::unique_ptr<Source> open_trace(const std::string& path, const ReadOptions& options = {});

}  // namespace kvsim::trace
