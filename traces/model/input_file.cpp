#include "traces/model/input_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/inputs.hpp"

namespace kvsim::model {
namespace {

constexpr const char* kRunAgain = "Run the command again once nothing writes the file.";

std::int64_t written_ns(const struct stat& status) {
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

/// A list that a signal handler walks: it only grows, and an entry is done with once its file is unmapped.
struct Mapped {
  const std::byte* begin;
  std::size_t bytes;
  std::string path;
  Mapped* next;
  std::atomic<bool> there{true};
};
std::atomic<Mapped*> mapped{nullptr};

}  // namespace

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
    auto* const entry = new Mapped{data_, size_, path_, mapped.load()};
    while (!mapped.compare_exchange_weak(entry->next, entry)) {
    }
  }
  written_ns_ = written_ns(status);
  inputs::note(file.get());
  descriptor_ = file.release();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      written_ns_(other.written_ns_) {}

MappedFile::~MappedFile() {
  for (Mapped* entry = mapped.load(); entry != nullptr && data_ != nullptr; entry = entry->next)
    if (entry->begin == data_) entry->there = false;
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MappedFile::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) system_error("cannot be examined", path_);
  if (static_cast<std::uint64_t>(status.st_size) < size_)
    input_error("was truncated while being read", path_, kRunAgain);
  if (written_ns(status) != written_ns_ || static_cast<std::uint64_t>(status.st_size) != size_)
    input_error("was rewritten while being read", path_, kRunAgain);
}

const char* mapped_file_at(const void* address) noexcept {
  for (const Mapped* entry = mapped.load(); entry != nullptr; entry = entry->next)
    if (entry->there && address >= entry->begin && address < entry->begin + entry->bytes)
      return entry->path.c_str();
  return nullptr;
}

}  // namespace kvsim::model
