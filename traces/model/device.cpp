#include "traces/model/device.hpp"

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#ifdef KVSIM_HAS_CUDA
#include "traces/model/cuda/cuda_run.hpp"
#endif

namespace kvsim::model {

Device parse_device(const std::string& text) {
  const std::string_view numbered = "cuda:";
  if (text == "cpu") return {Device::Kind::cpu, 0};
  if (text == "cuda") return {Device::Kind::cuda, 0};
  if (text.starts_with(numbered)) {
    if (const auto index = number_of<unsigned>(std::string_view(text).substr(numbered.size())))
      return {Device::Kind::cuda, *index};
    usage_error("\"" + text + "\" needs a device number", "--device", "Expected cpu, cuda or cuda:N.");
  }
  usage_error("unknown device \"" + text + "\"", "--device", suggestion(text, {"cpu", "cuda", "cuda:0"}));
}

std::unique_ptr<ModelRun> open_model_run(const Device& device, const ModelConfig& config,
                                         const Weights& weights, const RunOptions& options) {
  if (device.kind == Device::Kind::cpu) return std::make_unique<cpu::CpuRun>(config, weights, options);
  if (config.needs_processor())
    usage_error("models of type " + config.model_type + " run on the processor only", "--device");
#ifdef KVSIM_HAS_CUDA
  return cuda::open_cuda_run(device.index, config, weights, options);
#else
  usage_error("this kvsim was built without CUDA", "--device",
              "Install a CUDA compiler and configure with -DKVSIM_CUDA=ON, or use --device cpu.");
#endif
}

}  // namespace kvsim::model
