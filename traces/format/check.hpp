#pragma once
/// Reads a whole trace file and checks that its payload is consistent with its header and digests.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"

namespace kvsim::trace {

struct CheckReport {
  std::vector<std::string> problems;   ///< each names file and dataset; empty if the trace is sound
  std::uint64_t tensor_bytes = 0;      ///< read and digested
  std::uint64_t attention_rows = 0;    ///< over all layers and heads
  std::uint64_t column_heads = 0;      ///< heads whose column statistics were checked, over all layers
  std::uint64_t recomputed_heads = 0;  ///< of these, heads whose column statistics were recomputed from
                                       ///< queries and keys
  std::string content_sha256;          ///< computed from the payload
};

/// Checks the structure first (a file that fails there is reported with that one problem), then the payload:
/// checksums, digests, finite numbers, attention rows within [0, 1] that sum to 1, column
/// statistics. Progress counts bytes.
CheckReport check_trace(const std::string& path, Progress& progress);

}  // namespace kvsim::trace
