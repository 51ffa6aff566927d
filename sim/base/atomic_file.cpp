#include "sim/base/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "sim/base/error.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kBufferBytes = 1U << 20;

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  const char* hint = errno == ENOSPC || errno == EFBIG || errno == EDQUOT ? "Free some space." : "";
  input_error(what + ": " + std::generic_category().message(errno), path, hint);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), partial_(path + ".partial") {
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("cannot be written", path_);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::remove(partial_.c_str());
}

void AtomicFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written", path_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0) fail("cannot be written", path_);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail("cannot be given its name", path_);
  const int fd = fd_;
  fd_ = -1;
  // Some file systems tell only here that the disk was full.
  if (::close(fd) != 0) fail("cannot be written", path_);
}

void write_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void keep_names(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("cannot be opened", folder);
  const int failed = ::fsync(fd);
  ::close(fd);
  if (failed != 0) fail("cannot be written", folder);
}

}  // namespace kvsim
