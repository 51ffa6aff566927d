#pragma once
/// The device on which a model runs.
#include <memory>
#include <string>

#include "traces/model/model_run.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model {

struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  unsigned index = 0;  ///< of a CUDA device, in the order of CUDA_VISIBLE_DEVICES
};

/// "cpu", "cuda" (the first) or "cuda:N". Throws Error(usage).
Device parse_device(const std::string& text);

/// Opens a run on `device`. `config` and `weights` must outlive it. Throws Error(usage) when the device does
/// not exist, kvsim was built without support for it, or the model and its cache exceed its memory.
std::unique_ptr<ModelRun> open_model_run(const Device& device, const ModelConfig& config,
                                         const Weights& weights, const RunOptions& options);

}  // namespace kvsim::model
