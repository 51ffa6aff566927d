#pragma once
/// Files read by capture where they lie.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvsim::model {

/// A file mapped read-only.
class MappedFile {
 public:
  /// Opens `name` inside the directory `directory`. Throws Error(input), also when it is not a regular file
  /// or larger than `max_bytes`.
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
