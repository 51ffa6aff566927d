#pragma once
/// How a checkpoint stores the matrices of its blocks.
#include <cstdint>
#include <string>

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

/// A parameter takes `bits`. Each group of `inputs` neighbouring inputs of `outputs` neighbouring outputs
/// takes `constants` bits more: its scale, and its zero if it has one. 0 inputs or outputs: all of the
/// matrix.
struct StoredWeights {
  std::string method{};  ///< empty: as they come, in the bits of the checkpoint's type
  double bits = 16;
  std::uint64_t inputs = 0, outputs = 0;
  double constants = 0;
  unsigned product_bits = 16;  ///< of both factors of products; 8 or 4 where inputs are quantised, too
  bool experts_only = false;   ///< other matrices are as they come

  double matrix_bits(std::uint64_t n_inputs, std::uint64_t n_outputs) const;
};

/// Reads quantization_config, if the file has one: gptq, awq, bitsandbytes, fp8, mxfp4 (experts only), and
/// compressed-tensors of one group. Tables of a whole matrix (g_idx, code books) are not counted. Throws
/// Error(input) for other methods, and where only some of the blocks' matrices are quantised.
StoredWeights read_stored_weights(const JsonObject& config);
/// The same of a model that is to run, where each tensor says by its type whether it is quantised: fp8 and
/// mxfp4. Throws Error(input) for others.
StoredWeights read_runnable_weights(const JsonObject& config);

}  // namespace kvsim::model
