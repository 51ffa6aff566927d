#include "traces/model/input_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/file_descriptor.hpp"
#include "sim/base/inputs.hpp"

namespace kvsim::model {

MappedFile::MappedFile(const std::string& directory, const std::string& name, std::uint64_t max_bytes)
    : path_(directory + "/" + name) {
  const FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) system_error("cannot be opened", directory);
  // Opens without blocking, so that a pipe of that name is an error instead of a wait.
  FileDescriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) system_error("cannot be opened", path_);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) system_error("cannot be examined", path_);
  if (!S_ISREG(status.st_mode)) input_error("not a regular file", path_);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > max_bytes)
    input_error(std::to_string(size_) + " bytes, more than the limit of " + std::to_string(max_bytes), path_);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) system_error("cannot be mapped", path_);
    data_ = static_cast<const std::byte*>(address);
  }
  inputs::note(file.get());
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

}  // namespace kvsim::model
