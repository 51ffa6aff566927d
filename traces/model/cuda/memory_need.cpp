#include "traces/model/cuda/memory_need.hpp"

#include <string>

#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"

namespace kvsim::model::cuda {
void require_memory(const MemoryNeed& need, std::uint64_t free, const DeviceDescription& device,
                    const RunOptions& options) {
  if (need.total() <= free) return;
  std::string hint = "Lower --prefill-chunk, --max-new-tokens or the prompt";
  if (options.compute == Elem::f32) hint += ", or add --compute bf16";
  usage_error("the run needs " + bytes_text(need.total()) + " of the device's memory (weights " +
                  bytes_text(need.weights) + ", cache of " + std::to_string(options.capacity) + " tokens " +
                  bytes_text(need.cache) + ", workspace for passes of " +
                  std::to_string(options.pass_tokens) + " tokens " +
                  bytes_text(need.workspace + need.scores) + "), but " + bytes_text(free) + " of " +
                  bytes_text(device.memory) + " are free",
              "cuda:" + std::to_string(device.index) + ", " + device.name, hint + ".");
}

}  // namespace kvsim::model::cuda
