#include "sim/base/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace kvsim {
namespace {

constexpr std::size_t kBufferBytes = 1U << 20;

}  // namespace

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      partial_(path + ".partial"),
      file_(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) system_error("cannot be written", path_);
}

AtomicFile::~AtomicFile() {
  if (!partial_.empty()) std::remove(partial_.c_str());
}

void AtomicFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  write_all(file_, buffer_, path_);
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (::fsync(file_.get()) != 0) system_error("cannot be written", path_);
  close_written(file_, path_);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) system_error("cannot be given its name", path_);
  partial_.clear();
}

void write_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void keep_names(const std::string& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.is_open()) system_error("cannot be opened", folder);
  if (::fsync(file.get()) != 0) system_error("cannot be written", folder);
}

}  // namespace kvsim
