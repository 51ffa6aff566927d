#pragma once
/// Maps the files that capture reads.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvsim::model {

/// A file mapped read-only.
class MappedFile {
 public:
  /// Maps the file `name` in `directory`. Throws Error(input) when it cannot be opened, is not a regular file
  /// or is larger than `max_bytes`.
  MappedFile(const std::string& directory, const std::string& name, std::uint64_t max_bytes);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Throws Error(input) when the file has shrunk since it was mapped: reading past its end would be a
  /// SIGBUS.
  void check_size() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvsim::model
