#pragma once
/// Where a model runs.
#include <memory>
#include <string>

#include "traces/model/model_run.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model {

struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  unsigned index = 0;  ///< of several CUDA devices, as CUDA_VISIBLE_DEVICES orders them
};

/// "cpu", "cuda" (the first) or "cuda:N". Throws Error(usage).
Device parse_device(const std::string& text);

/// `config` and `weights` must outlive the run. Throws Error(usage) when the device is not there, this kvsim
/// was built without it, or the model and its cache exceed its memory.
std::unique_ptr<ModelRun> open_model_run(const Device& device, const ModelConfig& config,
                                         const Weights& weights, const RunOptions& options);

}  // namespace kvsim::model
