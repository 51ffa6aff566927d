#include "tools/result_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "sim/base/error.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void system_failure(const std::string& what, const std::string& path) {
  input_error(what + ": " + std::generic_category().message(errno), path);
}

/// Where a name leads, so that a link stays a link when its file is replaced.
std::string resolved(const std::string& path) {
  std::error_code failed;
  if (!fs::is_symlink(path, failed)) return path;
  const fs::path target = fs::weakly_canonical(path, failed);
  return failed ? path : target.string();
}

}  // namespace

ResultOutput::ResultOutput(const std::string& path, bool overwrite) {
  if (path.empty() || path == "-") return;
  path_ = resolved(path);
  std::error_code failed;
  const fs::file_status status = fs::status(path_, failed);
  if (fs::is_directory(status)) usage_error("is a directory", path_);
  const bool in_place = fs::exists(status) && !fs::is_regular_file(status);
  refuse_existing(path_, overwrite);
  if (!in_place) partial_ = path_ + ".partial";
  fd_ = in_place ? open(path_.c_str(), O_WRONLY | O_CLOEXEC)
                 : open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    partial_.clear();  // not ours to remove
    system_failure("cannot be written", path_);
  }
}

ResultOutput::~ResultOutput() {
  if (fd_ >= 0) ::close(fd_);
  if (!partial_.empty()) std::remove(partial_.c_str());
}

void ResultOutput::commit(std::string_view text) {
  if (path_.empty()) {
    std::cout << text;
    return;
  }
  while (!text.empty()) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_failure("cannot be written", path_);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (!partial_.empty() && fsync(fd_) != 0) system_failure("cannot be written", path_);
  close();
  if (partial_.empty()) return;
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) system_failure("cannot be given its name", path_);
  partial_.clear();
}

/// Some file systems tell only here that the disk was full.
void ResultOutput::close() {
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) system_failure("cannot be written", path_);
}

void refuse_existing(const std::string& path, bool overwrite) {
  std::error_code failed;
  if (!overwrite && fs::is_regular_file(path, failed))
    usage_error("exists already", path, "Choose another name, or say --overwrite.");
}

void refuse_to_overwrite_input(const std::string& path, const std::string& input) {
  std::error_code failed;
  if (!path.empty() && fs::equivalent(path, input, failed))
    usage_error("is read by this command and cannot be its output too", path);
}

}  // namespace kvsim::tools
