#include "traces/model/cuda/hand_over.hpp"

#include <utility>

namespace kvsim::model::cuda {

namespace {
constexpr const char* kBuffer = "a buffer for what the device hands out";
}

std::vector<HandOver::Slot> HandOver::slots_with(std::size_t slots, std::uint64_t bytes) {
  std::vector<Slot> made(slots);
  for (Slot& slot : made) slot.memory = PinnedBytes(bytes, kBuffer);
  return made;
}

HandOver::HandOver(std::size_t slots, std::uint64_t bytes, unsigned device)
    : slots_(slots_with(slots, bytes)), thread_([this, device] { work(device); }) {}

HandOver::~HandOver() {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = false;
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool HandOver::full() const {
  const std::lock_guard lock(mutex_);
  return submitted_ - shown_ == slots_.size();
}

std::byte* HandOver::begin(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return submitted_ - shown_ < slots_.size(); });
  rethrow();
  lock.unlock();
  Slot& slot = slots_[submitted_ % slots_.size()];
  if (slot.memory.size() < bytes) {
    slot.memory = {};  // frees the old buffer before allocating the larger one
    slot.memory = PinnedBytes(bytes, kBuffer);
  }
  return slot.memory.data();
}

void HandOver::submit(const Stream& stream, Show show) {
  Slot& slot = slots_[submitted_ % slots_.size()];
  slot.copied.record(stream);
  slot.show = std::move(show);
  {
    const std::lock_guard lock(mutex_);
    ++submitted_;
  }
  changed_.notify_all();
}

void HandOver::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return submitted_ == shown_; });
  rethrow();
}

void HandOver::abandon() noexcept {
  std::unique_lock lock(mutex_);
  wanted_ = false;
  changed_.wait(lock, [&] { return submitted_ == shown_; });
  wanted_ = true;
}

void HandOver::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void HandOver::show_one(Slot& slot, bool wanted) noexcept {
  try {
    slot.copied.synchronize();
    if (wanted) slot.show(slot.memory.data());
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    wanted_ = false;
  }
  slot.show = nullptr;
}

void HandOver::work(unsigned device) noexcept {
  try {
    open_device(device);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return submitted_ > shown_ || stop_; });
    if (submitted_ == shown_) return;
    Slot& slot = slots_[shown_ % slots_.size()];
    const bool wanted = wanted_ && !failure_;
    lock.unlock();
    show_one(slot, wanted);
    lock.lock();
    ++shown_;
    changed_.notify_all();
  }
}

}  // namespace kvsim::model::cuda
