#pragma once
/// Files and folders of the system, with failures reported as an Error.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kvsim {

/// Returns all bytes of a file or pipe, or of standard input for "-". Throws Error(input), also beyond
/// `max_bytes` and for a file that is being written or was left by a killed writer
/// (sim/base/partial_file.hpp).
std::string read_file(const std::string& path, std::uint64_t max_bytes);

/// As read_file(), but refuses pipes: for files that a command may read more than once.
std::string read_regular_file(const std::string& path, std::uint64_t max_bytes);

/// Whether a regular file begins with these bytes. Pipes are not opened: they can be read but once.
bool begins_with(const std::string& path, std::string_view bytes);

/// Whether there is a file or a folder of this name.
bool file_exists(const std::string& path);

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

/// The paths of what lies in FOLDER, sorted. Where it cannot be listed: none, and `failed` says why.
/// std::filesystem's iterator ends the program where memory ends while it takes a step (libstdc++ 12).
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& failed);

/// Makes a folder, and those that it lies in, where they are not there yet. Throws Error(input).
void make_folders(const std::string& path);

}  // namespace kvsim
