#include "traces/capture/cuda/memory_need.hpp"

#include <cstdio>
#include <string>

#include "sim/base/error.hpp"

namespace kvsim::capture::cuda {
namespace {

std::string mebibytes(std::uint64_t bytes) {
  constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;
  const auto size = static_cast<double>(bytes);
  char text[32];
  if (size < kGibibyte) {
    std::snprintf(text, sizeof text, "%.1f MiB", size / kMebibyte);
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", size / kGibibyte);
  }
  return text;
}

}  // namespace

void require_memory(const MemoryNeed& need, std::uint64_t free, const DeviceDescription& device,
                    const RunOptions& options) {
  if (need.total() <= free) return;
  std::string hint = "Lower --prefill-chunk, --max-new-tokens or the prompt";
  if (options.compute == Elem::f32) hint += ", or add --compute bf16";
  usage_error("the run needs " + mebibytes(need.total()) + " of the device's memory (weights " +
                  mebibytes(need.weights) + ", cache of " + std::to_string(options.capacity) + " tokens " +
                  mebibytes(need.cache) + ", workspace for passes of " + std::to_string(options.pass_tokens) +
                  " tokens " + mebibytes(need.workspace) + "), but " + mebibytes(free) + " of " +
                  mebibytes(device.memory) + " are free",
              "cuda:" + std::to_string(device.index) + ", " + device.name, hint + ".");
}

}  // namespace kvsim::capture::cuda
