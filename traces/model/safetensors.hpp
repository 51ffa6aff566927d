#pragma once
/// Checkpoints in the safetensors format: a 64-bit header length, a JSON header, one byte buffer
/// (https://github.com/huggingface/safetensors). Every rule of the format is checked before a tensor is
/// returned: unique names, sizes by checked arithmetic, offsets that tile the buffer without hole, overlap or
/// tail.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/progress.hpp"
#include "traces/model/input_file.hpp"

namespace kvsim::model {

struct GgufType;

/// A tensor's place in the byte buffer. `data` may have any alignment.
struct StoredTensor {
  std::string dtype;                 ///< as in the file, e.g. "BF16"
  std::vector<std::uint64_t> shape;  ///< row-major
  std::span<const std::byte> data;
  std::string file;
  const GgufType* blocks = nullptr;  ///< how a quantised tensor of a GGUF file is stored, else null

  std::uint64_t elements() const;  ///< product of the shape, checked when the header was read
};

using TensorMap = std::map<std::string, StoredTensor>;

/// The element type of `tensor`; throws Error(input) naming it for a dtype that kvsim does not compute with.
Elem tensor_elem(const StoredTensor& tensor, const std::string& name);

/// Checks the whole header of one file and returns its tensors; no tensor data is read. Accepts the format's
/// dtypes that kvsim does not compute with (tensor_elem() refuses them) and refuses all others.
TensorMap parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// model.safetensors, or the shards that model.safetensors.index.json lists, of a folder; or a GGUF file
/// (gguf_model.hpp says what of it is copied).
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& path);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  bool from_gguf() const { return is_gguf_; }
  /// Throws Error(input) when the tensor is missing.
  const StoredTensor& tensor(const std::string& name) const;
  const TensorMap& tensors() const { return tensors_; }
  /// Tensors of a shard that the index does not list; they are not part of the checkpoint.
  const std::vector<std::string>& unmapped() const { return unmapped_; }
  /// SHA-256 over the sorted SHA-256 digests (64 hexadecimal digits each) of the shards; of a GGUF file its
  /// own. Throws Error(interrupted) when `progress` is.
  std::string sha256(const Progress& progress = {}) const;
  /// Throws Error(input) when a shard was cut off or written since it was opened.
  void check_unchanged() const;

 private:
  void open_single();
  void open_sharded();

  std::string path_;
  bool is_gguf_ = false;
  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  TensorMap tensors_;
  std::vector<std::string> unmapped_;
};

}  // namespace kvsim::model
