#pragma once
/// A model from a GGUF file, told as a Hugging Face checkpoint tells it: its config.json and its tensors. A
/// key of the architecture that kvsim does not know is refused, never ignored, because it may change what the
/// model computes.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "traces/model/gguf_file.hpp"
#include "traces/model/safetensors.hpp"

namespace kvsim::model {

/// The config.json that the file amounts to, with a member "gguf" that names the file and counts its tensors
/// by type. What the file does not say is as llama.cpp has it. Throws Error(input) naming the key at fault.
std::string gguf_config(const Gguf& file);
/// The same of the file at `path`.
std::string gguf_config(const std::string& path);
/// Bits that a parameter of the blocks' matrices and one of embedding and head take in the file, in the mean.
std::pair<double, double> gguf_bits(const std::string& path);

/// The file's tensors under the names of a Hugging Face checkpoint, where they are in the file, in its types.
/// But rows of q and k that are interleaved in files of Llama's kin are copied in their order into `owned`,
/// which must live as long as the result, and a tensor of many experts or heads is as many tensors. Throws
/// Error(input) for a tensor or type that is not known.
TensorMap gguf_tensors(const Gguf& file, std::vector<std::unique_ptr<std::byte[]>>& owned);

}  // namespace kvsim::model
