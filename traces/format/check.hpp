#pragma once
/// Reads a whole trace file and says whether it holds what it claims.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"

namespace kvsim::trace {

struct CheckReport {
  std::vector<std::string> problems;   ///< each names file and dataset; empty: the trace is sound
  std::uint64_t tensor_bytes = 0;      ///< read and digested
  std::uint64_t attention_rows = 0;    ///< over all layers and heads
  std::uint64_t column_heads = 0;      ///< heads whose column statistics were checked, over all layers,
  std::uint64_t recomputed_heads = 0;  ///< and of how many queries and keys gave the same
  std::string content_sha256;          ///< as computed from the payload
};

/// Structure first (a file that fails there has that one problem), then the payload: checksums, digests,
/// finite numbers, attention rows within [0, 1] that sum to 1, column statistics (check_columns.hpp).
/// Progress counts bytes.
CheckReport check_trace(const std::string& path, Progress& progress);

}  // namespace kvsim::trace
