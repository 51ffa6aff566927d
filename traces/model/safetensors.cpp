#include "traces/model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/gguf_model.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

// Enough for any real checkpoint, and small enough that a hostile header costs little.
constexpr std::uint64_t kMaxHeaderBytes = 16ULL << 20;
constexpr std::uint64_t kMaxShardBytes = 1ULL << 40;
constexpr std::size_t kMaxTensors = 200'000;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxRank = 4;
constexpr std::uint64_t kMaxDimension = 1ULL << 32;
constexpr std::size_t kMaxShards = 10'000;
constexpr std::size_t kValuesPerTensor = 4 + 2 + kMaxRank;  // members, offsets, dimensions

constexpr std::size_t kDigestedAtOnce = std::size_t{64} << 20;
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

struct DtypeBits {
  std::string_view name;
  std::uint64_t bits;
};
constexpr std::array kDtypes{
    DtypeBits{"BOOL", 8},        DtypeBits{"U8", 8},      DtypeBits{"I8", 8},   DtypeBits{"F8_E5M2", 8},
    DtypeBits{"F8_E4M3", 8},     DtypeBits{"F8_E8M0", 8}, DtypeBits{"I16", 16}, DtypeBits{"F8_E4M3FNUZ", 8},
    DtypeBits{"F8_E5M2FNUZ", 8}, DtypeBits{"U16", 16},    DtypeBits{"F16", 16}, DtypeBits{"BF16", 16},
    DtypeBits{"I32", 32},        DtypeBits{"U32", 32},    DtypeBits{"F32", 32}, DtypeBits{"I64", 64},
    DtypeBits{"U64", 64},        DtypeBits{"F64", 64},    DtypeBits{"C64", 64}, DtypeBits{"F4", 4},
    DtypeBits{"F6_E2M3", 6},     DtypeBits{"F6_E3M2", 6},
};

std::uint64_t dtype_bits(const std::string& dtype, const std::string& where) {
  for (const DtypeBits& known : kDtypes) {
    if (known.name == dtype) return known.bits;
  }
  input_error("unknown dtype " + in_quotes(dtype), where, "kvsim reads F32, F16 and BF16 checkpoints.");
}

/// Bytes of a tensor. Throws Error(input) when the size overflows or is not a whole number of bytes.
std::uint64_t checked_bytes(const std::vector<std::uint64_t>& shape, std::uint64_t bits,
                            const std::string& where) {
  std::uint64_t total = bits;
  for (const std::uint64_t dimension : shape) {
    if (__builtin_mul_overflow(total, dimension, &total)) input_error("its size overflows 64 bits", where);
  }
  if (total % 8 != 0) input_error("its size is no whole number of bytes", where);
  return total / 8;
}

struct Entry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

Entry parse_entry(const std::string& name, const json::value& value, std::uint64_t buffer_bytes,
                  const std::string& path) {
  const std::string where = path + " tensor " + in_quotes(name);
  if (name.size() > kMaxNameBytes) input_error("a tensor name is longer than 512 bytes", path);
  const JsonObject object(value, where);
  for (const auto& member : object.raw()) {
    if (member.key() != "dtype" && member.key() != "shape" && member.key() != "data_offsets")
      input_error("unexpected member " + in_quotes(member.key()), where);
  }
  Entry entry;
  entry.name = name;
  entry.dtype = object.text("dtype");
  const json::array& shape = object.array("shape");
  if (shape.size() > kMaxRank) input_error("more than 4 dimensions", where);
  for (const json::value& dimension : shape)
    entry.shape.push_back(json_integer(dimension, where + " shape", 0, kMaxDimension));
  const json::array& offsets = object.array("data_offsets");
  if (offsets.size() != 2) input_error("data_offsets must hold two integers", where);
  entry.begin = json_integer(offsets[0], where + " data_offsets", 0, buffer_bytes);
  entry.end = json_integer(offsets[1], where + " data_offsets", 0, buffer_bytes);
  if (entry.begin > entry.end) input_error("data_offsets run backwards", where);
  const std::uint64_t bytes = checked_bytes(entry.shape, dtype_bits(entry.dtype, where), where);
  if (bytes != entry.end - entry.begin) {
    input_error("dtype and shape take " + std::to_string(bytes) + " bytes, data_offsets span " +
                    std::to_string(entry.end - entry.begin),
                where);
  }
  return entry;
}

void check_metadata(const json::value& value, const std::string& path) {
  const JsonObject metadata(value, path + " __metadata__");
  for (const auto& member : metadata.raw()) {
    if (!member.value().is_string())
      input_error(in_quotes(member.key()) + " must be a string", metadata.where());
  }
}

/// The text of the header, after checking its length against the file.
std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < 8)
    input_error("too short for a safetensors file (" + std::to_string(file.size()) + " bytes)", path);
  std::uint64_t length = 0;
  static_assert(std::endian::native == std::endian::little, "safetensors lengths are little-endian");
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeaderBytes) {
    input_error("its first 8 bytes announce a header of " + std::to_string(length) + " bytes", path,
                "Not a safetensors file, or a damaged one.");
  }
  if (length > file.size() - 8) {
    input_error("the header (" + std::to_string(length) + " bytes) reaches past the end of the file", path,
                "The file is truncated: download it again.");
  }
  return {reinterpret_cast<const char*>(file.data()) + 8, static_cast<std::size_t>(length)};
}

/// Checks that the tensors tile the buffer from 0 to its end: a hole or a tail can hide a second file, an
/// overlap can make few bytes look like many tensors.
void check_tiling(std::vector<Entry>& entries, std::uint64_t buffer_bytes, const std::string& path) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      input_error(
          std::string(entry.begin < expected ? "overlaps the tensor before it" : "leaves a hole before it") +
              " (begins at " + std::to_string(entry.begin) + ", expected " + std::to_string(expected) + ")",
          path + " tensor " + in_quotes(entry.name));
    }
    expected = entry.end;
  }
  if (expected != buffer_bytes) {
    input_error("the tensors cover " + std::to_string(expected) + " of " + std::to_string(buffer_bytes) +
                    " data bytes",
                path, "The file is truncated or has foreign bytes at its end.");
  }
}

/// Checks that a shard is a plain file name inside the checkpoint's folder: a name with a path could point
/// anywhere.
void check_shard_name(const std::string& name, const std::string& where) {
  constexpr std::string_view kSuffix = ".safetensors";
  const bool plain = name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.size() <= 255 &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) {
    input_error(in_quotes(name) + " is not a plain file name ending in .safetensors", where,
                "Shards must lie beside the index.");
  }
}

}  // namespace

std::uint64_t StoredTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape) product *= dimension;
  return product;
}

Elem tensor_elem(const StoredTensor& tensor, const std::string& name) {
  if (tensor.dtype == "F32") return Elem::f32;
  if (tensor.dtype == "F16") return Elem::f16;
  if (tensor.dtype == "BF16") return Elem::bf16;
  input_error("dtype " + tensor.dtype + " is not supported", tensor.file + " tensor " + in_quotes(name),
              "kvsim reads F32, F16 and BF16, F8_E4M3 with scales of blocks, and gpt-oss's 4 bits.");
}

TensorMap parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::string_view header = header_text(file, path);
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || header[first] != '{')
    input_error("the header is not a JSON object", path);
  const json::value document = parse_strict_json(header, path + " header", kMaxTensors * kValuesPerTensor);
  const JsonObject object(document, path + " header");
  if (object.raw().size() > kMaxTensors + 1) input_error("more than 200000 tensors", path);

  const std::uint64_t buffer_bytes = file.size() - 8 - header.size();
  std::vector<Entry> entries;
  for (const auto& member : object.raw()) {
    const std::string name(member.key());
    if (name == "__metadata__") {
      check_metadata(member.value(), path);
    } else {
      entries.push_back(parse_entry(name, member.value(), buffer_bytes, path));
    }
  }
  check_tiling(entries, buffer_bytes, path);

  TensorMap tensors;
  const std::span<const std::byte> buffer = file.subspan(8 + header.size());
  for (Entry& entry : entries) {
    tensors.emplace(std::move(entry.name),
                    StoredTensor{std::move(entry.dtype), std::move(entry.shape),
                                 buffer.subspan(entry.begin, entry.end - entry.begin), path});
  }
  return tensors;
}

Checkpoint::Checkpoint(const std::string& path) : path_(path), is_gguf_(is_gguf(path)) {
  if (is_gguf_) {
    GgufFile gguf(path);
    tensors_ = gguf_tensors(gguf.content, owned_);
    files_.push_back(std::move(gguf.file));
  } else if (file_exists(path + "/" + kIndexName)) {
    open_sharded();
  } else if (file_exists(path + "/" + kSingleName)) {
    open_single();
  } else {
    input_error(std::string("neither ") + kSingleName + " nor " + kIndexName + " found", path,
                "kvsim reads Hugging Face checkpoints in safetensors form, and GGUF files.");
  }
}

void Checkpoint::open_single() {
  files_.emplace_back(path_, kSingleName, kMaxShardBytes);
  tensors_ = parse_safetensors(files_.back().bytes(), files_.back().path());
}

void Checkpoint::open_sharded() {
  const std::string path = path_ + "/" + kIndexName;
  const json::value document =
      parse_strict_json(read_regular_file(path, kMaxHeaderBytes), path, 2 * kMaxTensors);
  const JsonObject weight_map = JsonObject(document, path).object("weight_map");
  if (weight_map.raw().size() > kMaxTensors) input_error("more than 200000 tensors", path);

  std::map<std::string, std::vector<std::string>> wanted;  // tensors by shard file
  for (const auto& member : weight_map.raw()) {
    const std::string name(member.key());
    const std::string shard = weight_map.text(name);
    check_shard_name(shard, weight_map.path(in_quotes(name)));
    wanted[shard].push_back(name);
  }
  if (wanted.empty()) input_error("weight_map is empty", path);
  if (wanted.size() > kMaxShards) input_error("more than 10000 shards", path);

  std::map<std::string, std::string> home;  // the shard of every tensor, in the index or not
  for (const auto& [shard, names] : wanted) {
    files_.emplace_back(path_, shard, kMaxShardBytes);
    TensorMap found = parse_safetensors(files_.back().bytes(), files_.back().path());
    for (const auto& [name, tensor] : found) {
      const auto [earlier, fresh] = home.emplace(name, tensor.file);
      if (!fresh)
        input_error("tensor " + in_quotes(name) + " is in " + earlier->second + " and in " + tensor.file,
                    path);
    }
    for (const std::string& name : names) {
      auto node = found.extract(name);
      if (node.empty()) input_error(in_quotes(name) + " is not in " + shard, path);
      tensors_.insert(std::move(node));
    }
    for (const auto& [name, tensor] : found) unmapped_.push_back(name);
  }
}

const StoredTensor& Checkpoint::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    input_error("tensor " + in_quotes(name) + " is missing from the checkpoint", path_);
  return found->second;
}

std::string Checkpoint::sha256(const Progress& progress) const {
  std::vector<std::string> digests;
  for (const MappedFile& file : files_) {
    file.check_unchanged();
    Sha256 digest;
    for (std::size_t done = 0; done < file.bytes().size();) {
      progress.check();
      const std::size_t n = std::min(kDigestedAtOnce, file.bytes().size() - done);
      digest.update(file.bytes().data() + done, n);
      done += n;
    }
    digests.push_back(digest.hex());
  }
  if (is_gguf_) return digests.front();
  std::sort(digests.begin(), digests.end());
  Sha256 all;
  for (const std::string& digest : digests) all.update(digest.data(), digest.size());
  return all.hex();
}

void Checkpoint::check_unchanged() const {
  for (const MappedFile& file : files_) file.check_unchanged();
}

}  // namespace kvsim::model
