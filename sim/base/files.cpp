#include "sim/base/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "sim/base/error.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/interruption.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/shortage.hpp"

namespace kvsim {
namespace {

/// Whether a file comes from another process, as a pipe or a terminal does.
bool may_wait(const std::string& path) {
  struct stat status {};
  return (path == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status)) == 0 &&
         !S_ISREG(status.st_mode);
}

}  // namespace

std::string read_file(const std::string& path, std::uint64_t max_bytes) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path;
  if (!standard_input) refuse_partial(path);
  std::optional<interruption::Wait> wait;
  if (may_wait(path)) wait.emplace();
  const FileDescriptor file(standard_input ? ::dup(STDIN_FILENO)
                                           : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) system_error("cannot be opened", name);
  inputs::note(file.get());
  std::string text;
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error("cannot be read", name);
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > max_bytes)
      input_error("more than the limit of " + std::to_string(max_bytes) + " bytes", name);
  }
}

std::string read_regular_file(const std::string& path, std::uint64_t max_bytes) {
  if (may_wait(path)) input_error("is not a regular file", path);
  return read_file(path, max_bytes);
}

bool begins_with(const std::string& path, std::string_view bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string start(bytes.size(), '\0');
  return file.is_open() &&
         ::pread(file.get(), start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()) &&
         start == bytes;
}

bool file_exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

FileDescriptor::~FileDescriptor() {
  reset(-1);
}

void FileDescriptor::reset(int value) {
  if (is_open()) ::close(value_);
  value_ = value;
}

void system_error(const std::string& what, const std::string& path) {
  refuse_shortage(errno, what, path);
  const char* hint = errno == ENOSPC || errno == EFBIG || errno == EDQUOT ? "Free some space." : "";
  input_error(what + ": " + std::generic_category().message(errno), path, hint);
}

void write_all(const FileDescriptor& file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_error("cannot be written", path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void close_written(FileDescriptor& file, const std::string& path) {
  if (::close(file.release()) != 0) system_error("cannot be written", path);
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& failed) {
  std::vector<std::filesystem::path> out;
  const auto close = [](DIR* opened) { ::closedir(opened); };
  const std::unique_ptr<DIR, decltype(close)> opened(::opendir(folder.c_str()), close);
  errno = opened ? 0 : errno;
  while (const dirent* const entry = opened ? ::readdir(opened.get()) : nullptr) {
    if (const std::string_view name = entry->d_name; name != "." && name != "..")
      out.push_back(folder / name);
    errno = 0;
  }
  failed.assign(errno, std::generic_category());
  if (failed) out.clear();
  std::ranges::sort(out);
  return out;
}

void make_folders(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) input_error("cannot be made: " + failed.message(), path);
}

}  // namespace kvsim
