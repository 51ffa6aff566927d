#pragma once
/// The device a run works on, and what lies and runs on it.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvsim::model::cuda {

struct DeviceDescription {
  unsigned index = 0;
  std::string name;          ///< as the driver calls it
  int major = 0, minor = 0;  ///< compute capability
  std::uint64_t memory = 0;  ///< bytes
  int multiprocessors = 0;
  int driver = 0, runtime = 0;  ///< versions, 1000 * major + 10 * minor
};

/// Makes device `index` the calling thread's: everything below belongs to it. Throws Error(usage): no driver,
/// one older than the runtime, no device, no such device (the message lists those there are).
DeviceDescription open_device(unsigned index);

/// "13.0" of 13000.
std::string version_text(int version);

struct MemoryState {
  std::uint64_t free = 0, total = 0;
};
MemoryState device_memory();

/// In what order a device does its work: in order within a stream, streams beside each other.
class Stream {
 public:
  Stream();
  cudaStream_t get() const { return stream_.get(); }
  /// Waits, on the processor, for all that was enqueued; throws what went wrong in it.
  void synchronize() const;

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const;
  };
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

/// A point in a stream.
class Event {
 public:
  Event();
  void record(const Stream& stream);
  /// Work enqueued on `stream` from now on starts after this point.
  void hold(const Stream& stream) const;
  /// Waits on the processor.
  void synchronize() const;
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const;
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};
/// Nanoseconds the device took from one point to the other; both must have been passed. Resolution about
/// half a microsecond.
float nanoseconds_between(const Event& from, const Event& to);

/// Memory of the device. allocate() throws Error(usage) naming `what`, the bytes asked for and those free.
struct DeviceMemory {
  static void* allocate(std::uint64_t bytes, std::string_view what);
  void operator()(void* data) const;  ///< frees it
};
/// Page-locked memory of the processor, which the device reads and writes by itself. Error(usage) likewise.
struct PinnedMemory {
  static void* allocate(std::uint64_t bytes, std::string_view what);
  void operator()(void* data) const;
};

/// `count` elements of either, uninitialised.
template <class T, class Memory>
class MemoryArray {
 public:
  MemoryArray() = default;
  MemoryArray(std::uint64_t count, std::string_view what)
      : data_(count == 0 ? nullptr : static_cast<T*>(Memory::allocate(count * sizeof(T), what))),
        size_(count) {}
  T* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  std::unique_ptr<T[], Memory> data_;
  std::uint64_t size_ = 0;
};
template <class T>
using DeviceArray = MemoryArray<T, DeviceMemory>;
template <class T>
using PinnedArray = MemoryArray<T, PinnedMemory>;
using DeviceBytes = DeviceArray<std::byte>;
using PinnedBytes = PinnedArray<std::byte>;

/// Copies `bytes` from or to this machine's memory, in order on `stream`. Pinned memory is read or written
/// when the stream gets there: synchronise before touching it. Other memory is read before this returns, and
/// complete when it returns.
void copy_to_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
void copy_from_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
void copy_on_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
/// `rows` pieces of `bytes`, `from_pitch` and `to_pitch` bytes apart.
void copy_rows_from_device(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                           std::uint64_t bytes, std::uint64_t rows, const Stream& stream);
void zero(void* data, std::uint64_t bytes, const Stream& stream);

}  // namespace kvsim::model::cuda
