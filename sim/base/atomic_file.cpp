#include "sim/base/atomic_file.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kBufferBytes = 1U << 20;

}  // namespace

void AtomicFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  write_all(file_.file(), buffer_, path_);
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  file_.commit();
}

void write_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace kvsim
