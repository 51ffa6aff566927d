#pragma once
/// The device memory that a run needs, computed before any of it is allocated.
#include <cstdint>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/model_run.hpp"

namespace kvsim::model::cuda {

struct MemoryNeed {
  std::uint64_t weights = 0;    ///< bytes
  std::uint64_t cache = 0;      ///< keys, values and column statistics
  std::uint64_t workspace = 0;  ///< of one pass, and of the libraries
  std::uint64_t scores = 0;     ///< the workspace of attention

  std::uint64_t total() const { return weights + cache + workspace + scores; }
};

/// Throws Error(usage) with the numbers, and the options to lower, when the need exceeds the `free` bytes of
/// `device`.
void require_memory(const MemoryNeed& need, std::uint64_t free, const DeviceDescription& device,
                    const RunOptions& options);

}  // namespace kvsim::model::cuda
