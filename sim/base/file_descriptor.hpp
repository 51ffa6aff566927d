#pragma once
/// Open files of the system, with failures reported as an Error.
#include <string>
#include <string_view>
#include <utility>

namespace kvsim {

/// Owns a file descriptor and closes it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value = -1) : value_(value) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;

  bool is_open() const { return value_ >= 0; }
  int get() const { return value_; }
  /// Closes the open file, if any, and takes `value`.
  void reset(int value);
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Throws Error(input): `what`, the reason from errno, and a hint about a full disk.
[[noreturn]] void system_error(const std::string& what, const std::string& path);

/// Writes all of `text`, even if the system accepts it in parts. Throws Error(input).
void write_all(const FileDescriptor& file, std::string_view text, const std::string& path);

/// Closes a written file, because some file systems report a full disk only on close. Throws Error(input).
void close_written(FileDescriptor& file, const std::string& path);

}  // namespace kvsim
