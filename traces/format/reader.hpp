#pragma once
/// Opens a trace file after checking its structure; no payload byte is read and nothing is allocated from a
/// size that was not checked before.
#include <cstdint>
#include <memory>
#include <string>

#include "traces/format/source.hpp"

namespace kvsim::trace {

struct ReadOptions {
  bool allow_partial = false;                   ///< accept complete != 1
  std::uint64_t max_header_bytes = 1ULL << 30;  ///< most that token lists, passes and text may take
};

/// Throws Error(input) naming file and dataset when the file is missing, foreign, incomplete or hostile.
std::unique_ptr<Source> open_trace(const std::string& path, const ReadOptions& options = {});

}  // namespace kvsim::trace
