#include "traces/capture/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::capture {
namespace {

[[noreturn]] void system_error(const char* what, const std::string& path) {
  input_error(std::string(what) + ": " + std::strerror(errno), path);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

std::uint64_t size_of(int descriptor, const std::string& path, std::uint64_t max_bytes) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) system_error("cannot be examined", path);
  if (!S_ISREG(status.st_mode)) input_error("not a regular file", path);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes) {
    input_error(std::to_string(size) + " bytes, more than the limit of " + std::to_string(max_bytes), path);
  }
  return size;
}

}  // namespace

MappedFile::MappedFile(const std::string& directory, const std::string& name, std::uint64_t max_bytes)
    : path_(directory + "/" + name) {
  const Descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) system_error("cannot be opened", directory);
  // Non-blocking, so that a pipe of that name is an error and no wait.
  Descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) system_error("cannot be opened", path_);
  size_ = size_of(file.get(), path_, max_bytes);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) system_error("cannot be mapped", path_);
    data_ = static_cast<const std::byte*>(address);
  }
  descriptor_ = file.release();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MappedFile::check_size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) system_error("cannot be examined", path_);
  if (static_cast<std::uint64_t>(status.st_size) < size_)
    input_error("was truncated while being read", path_);
}

std::string read_small_file(const std::string& path, std::uint64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) system_error("cannot be opened", path);
  std::string text(size_of(file.get(), path, max_bytes), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error("cannot be read", path);
    if (got == 0) input_error("was truncated while being read", path);
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace kvsim::capture
