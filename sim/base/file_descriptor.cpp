#include "sim/base/file_descriptor.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "sim/base/error.hpp"
#include "sim/base/shortage.hpp"

namespace kvsim {

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

}  // namespace kvsim
