#pragma once
/// Open files of the system, and what goes wrong with them as an Error.
#include <string>
#include <string_view>
#include <utility>

namespace kvsim {

/// Closed at the end of its life.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value = -1) : value_(value) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;

  bool is_open() const { return value_ >= 0; }
  int get() const { return value_; }
  /// Closes what was open.
  void reset(int value);
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Throws Error(input): `what` with the reason in errno, and what to do about a full disk.
[[noreturn]] void system_error(const std::string& what, const std::string& path);

/// All of it, however often the system takes a part only. Throws Error(input).
void write_all(const FileDescriptor& file, std::string_view text, const std::string& path);

/// Some file systems tell only when a file is closed that the disk was full. Throws Error(input).
void close_written(FileDescriptor& file, const std::string& path);

}  // namespace kvsim
