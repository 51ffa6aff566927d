#pragma once
/// Runs a model on a CUDA device, weights and activations in float or bf16.
#include <memory>

#include "traces/model/model_run.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cuda {

/// Puts the weights on device `index`; `config` must outlive the run, `weights` need not. Before anything is
/// put there, what the run will need is held against what is free. Throws Error(usage): no driver or device,
/// too little memory (with the numbers), an element type that does not go with the arithmetic.
std::unique_ptr<ModelRun> open_cuda_run(unsigned index, const ModelConfig& config, const Weights& weights,
                                        const RunOptions& options);

}  // namespace kvsim::model::cuda
