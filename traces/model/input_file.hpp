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
  /// Throws Error(input) when the file was cut off, which a read past its end turns into SIGBUS, or written
  /// since it was mapped.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t written_ns_ = 0;
};

/// The mapped file that an address lies in; null: none. A signal handler may call it.
const char* mapped_file_at(const void* address) noexcept;

}  // namespace kvsim::model
