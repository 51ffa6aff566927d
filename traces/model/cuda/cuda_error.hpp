#pragma once
/// Turns CUDA status codes into errors of kvsim. nvcc compiles this header too: C++17.
#include <cuda_runtime_api.h>

#include <string_view>

namespace kvsim::model::cuda {

/// Advice for an error about too little device memory.
inline constexpr std::string_view kLessMemory =
    "Shorten the prompt, lower --max-new-tokens, choose another device, or use --device cpu.";

/// Throws what check() does for a status other than success.
[[noreturn]] void fail(cudaError_t status, std::string_view doing);

/// Throws unless `status` is success; `doing` completes the sentence "... while <doing>". Throws Error(usage)
/// with advice for a missing device, a driver that is older than the runtime or does not work, too little
/// memory or no code for the device; Error(bug) for anything else, which is a mistake of kvsim or a broken
/// device.
inline void check(cudaError_t status, std::string_view doing) {
  if (status != cudaSuccess) fail(status, doing);
}

}  // namespace kvsim::model::cuda
