#pragma once
/// Files in the GGUF format, versions 2 and 3: a magic and a version, metadata as typed values under keys, a
/// table of tensors, then their data (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Every rule
/// of the format is checked when a file is opened: unique keys and names, counts and lengths against the
/// bytes that are left before anything is allocated, known type codes, sizes by checked arithmetic, and
/// tensors that tile the data without hole, overlap or tail.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/input_file.hpp"

namespace kvsim::model {

/// How a tensor's elements are stored: in blocks of `items` elements and `bytes` bytes.
struct GgufType {
  std::uint32_t code;
  std::string_view name;
  std::uint32_t items, bytes;
};

struct GgufTensor {
  const GgufType* type = nullptr;
  std::vector<std::uint64_t> shape;  ///< row-major: the file's order, which begins with the fastest, reversed
  std::span<const std::byte> data;   ///< of any alignment

  std::uint64_t elements() const;  ///< product of the shape, checked when the file was read
};

/// What a file says. Texts and data are views of the file, which must outlive this. The getters throw
/// Error(input), which names file and key, when the key is missing or of another type; those that end in _or
/// return `absent` for a missing key.
class Gguf {
 public:
  /// `path` is what messages call the file.
  Gguf(std::span<const std::byte> file, const std::string& path);

  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  std::vector<std::string> keys() const;  ///< in alphabetical order

  /// An integer of any width that is not negative.
  std::uint64_t integer(std::string_view key) const;
  /// A finite float. A float32 is the double nearest to its shortest decimal form, so that 1e-5 is 1e-5.
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  /// Bytes as they are in the file; the format asks for UTF-8, which nothing has checked.
  std::string_view text(std::string_view key) const;
  /// Arrays of texts, of integers of any width, of floats (as number() reads them, but of any value), and of
  /// bools.
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<bool> flags(std::string_view key) const;
  std::uint64_t integer_or(std::string_view key, std::uint64_t absent) const {
    return has(key) ? integer(key) : absent;
  }
  double number_or(std::string_view key, double absent) const { return has(key) ? number(key) : absent; }
  bool flag_or(std::string_view key, bool absent) const { return has(key) ? flag(key) : absent; }
  std::string_view text_or(std::string_view key, std::string_view absent) const {
    return has(key) ? text(key) : absent;
  }
  /// What messages call the value of `key`.
  std::string where(std::string_view key) const;

  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  /// Throws Error(input) when the tensor is missing.
  const GgufTensor& tensor(std::string_view name) const;

 private:
  struct Value {
    std::uint32_t type = 0;  ///< of the value, or of an array's elements
    bool is_array = false;
    std::uint64_t count = 1;
    std::span<const std::byte> bytes;
  };
  class Reader;

  const Value& value(std::string_view key) const;
  template <class T>
  std::vector<T> read(std::string_view key, bool is_array, const char* wanted,
                      std::optional<T> (*element)(std::uint32_t, const std::byte*)) const;
  std::vector<std::string_view> read_texts(std::string_view key, bool is_array, const char* wanted) const;
  [[noreturn]] void refuse(std::string_view key, const Value& value, const char* wanted) const;
  void read_metadata(Reader& reader, std::uint64_t count);
  void read_tensors(Reader& reader, std::uint64_t count, std::span<const std::byte> file);

  std::string path_;
  std::uint32_t version_ = 0;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

/// A GGUF file mapped read-only.
struct GgufFile {
  explicit GgufFile(const std::string& path);

  MappedFile file;
  Gguf content;
};

/// Whether `path` names a regular file that begins as a GGUF file does, or one that is not there and would be
/// called so.
bool is_gguf(const std::string& path);

}  // namespace kvsim::model
