#pragma once
/// What CUDA answers, as errors of kvsim. Read by nvcc too: C++17.
#include <cuda_runtime_api.h>

#include <string_view>

namespace kvsim::model::cuda {

/// What to do when the device's memory does not suffice.
inline constexpr std::string_view kLessMemory =
    "Shorten the prompt, lower --max-new-tokens, choose another device, or use --device cpu.";

/// Throws unless `status` is success; `doing` completes the sentence "... while <doing>". No device, a driver
/// older than the runtime, memory, no code for the device: Error(usage) with what to do; anything else is
/// our mistake or a broken device: Error(bug).
void check(cudaError_t status, std::string_view doing);

}  // namespace kvsim::model::cuda
