#pragma once
/// How a checkpoint stores the matrices of its blocks.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "traces/model/gguf_file.hpp"

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

namespace kvsim::model {

// Weights in 8 and 4 bits that a safetensors checkpoint stores with scales beside them (DeepSeek V3,
// gpt-oss).

/// A number of 4 bits of exponent and 3 of fraction without infinities (F8_E4M3; arXiv 2209.05433, table 1).
float widen_e4m3(std::uint8_t bits);

/// A matrix of such numbers, row-major with `columns`, in blocks that share a factor.
struct ScaledMatrix {
  std::span<const std::byte> numbers;
  std::uint64_t columns = 0;
  std::uint64_t block_rows = 0, block_columns = 0;
  /// Row-major, of each block; the last ones of rows and columns may be narrower.
  std::span<const float> scales;
};
/// The products in bf16, rounded once.
std::vector<std::uint16_t> scaled_rows(const ScaledMatrix& matrix);

/// Blocks of the type MXFP4 of GGUF files.
const GgufType& mxfp4();
/// Appends a row to blocks of that type: `pairs` holds two neighbouring numbers a byte, the first in the low
/// half, `exponents` that of the factor of each 32 numbers.
void append_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents,
                  std::vector<std::byte>& blocks);

}  // namespace kvsim::model
