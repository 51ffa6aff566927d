#include "sim/base/interruption.hpp"

#include <unistd.h>

#include <array>
#include <deque>
#include <mutex>

#include "sim/base/error.hpp"

namespace kvsim::interruption {
namespace {

constexpr std::size_t kMostFiles = 64;
std::atomic<pid_t> owner{0};
std::array<std::atomic<const char*>, kMostFiles> slots{};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
                  std::atomic<int>::is_always_lock_free,
              "a signal handler may touch nothing that locks");

/// Names are kept to the end of the process: a handler may be reading one while its file is finished.
const char* kept(const std::string& path) {
  static std::mutex mutex;
  static auto* const names = new std::deque<std::string>;  // usable while static objects are destroyed
  const std::lock_guard lock(mutex);
  return names->emplace_back(path).c_str();
}

}  // namespace

Wait::Wait() {
  waits.fetch_add(1);
  if (!seen.load()) return;
  waits.fetch_sub(1);
  throw Error(ErrorKind::interrupted, "interrupted");
}

UnfinishedFile::UnfinishedFile(const std::string& path) {
  owner = ::getpid();
  const char* const name = kept(path);
  for (std::atomic<const char*>& slot : slots) {
    const char* free = nullptr;
    if (!slot.compare_exchange_strong(free, name)) continue;
    slot_ = &slot;
    return;
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (slot_ != nullptr) slot_->store(nullptr);
}

void remove_unfinished_files() noexcept {
  if (::getpid() != owner.load()) return;  // a copy that looks at an input
  for (const std::atomic<const char*>& slot : slots)
    if (const char* const name = slot.load()) ::unlink(name);
}

}  // namespace kvsim::interruption
