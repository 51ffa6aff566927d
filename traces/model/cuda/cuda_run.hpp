#pragma once
/// Runs a model on a CUDA device, weights and activations in float or bf16.
#include <memory>

#include "traces/model/model_run.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cuda {

/// Copies the weights to device `index`; `config` must outlive the run, `weights` need not. Compares the
/// memory that the run will need with the free memory before allocating any. Throws Error(usage) when there
/// is no driver or device, too little memory (with the numbers), or an element type that does not fit the
/// arithmetic.
std::unique_ptr<ModelRun> open_cuda_run(unsigned index, const ModelConfig& config, const Weights& weights,
                                        const RunOptions& options);

}  // namespace kvsim::model::cuda
