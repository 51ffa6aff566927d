#pragma once
/// The CUDA device of a run: its description, streams, events, memory and copies.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvsim::model::cuda {

struct DeviceDescription {
  unsigned index = 0;
  std::string name;          ///< the driver's name for it
  int major = 0, minor = 0;  ///< compute capability
  std::uint64_t memory = 0;  ///< bytes
  int multiprocessors = 0;
  int driver = 0, runtime = 0;  ///< versions, 1000 * major + 10 * minor
};

/// Why this machine has nothing to run on: no driver is installed, or no device is there. Null if it has
/// something, which may still not work.
const char* no_device();

/// Makes device `index` current in the calling thread; everything below uses the current device. Throws
/// Error(usage) when there is no driver, a driver older than the runtime, no device, or no device of that
/// index (the message lists the devices).
DeviceDescription open_device(unsigned index);

/// The text of a version number: "13.0" for 13000.
std::string version_text(int version);

struct MemoryState {
  std::uint64_t free = 0, total = 0;
};
MemoryState device_memory();

/// A queue of device work: work within a stream runs in order, and streams run concurrently.
class Stream {
 public:
  Stream();
  cudaStream_t get() const { return stream_.get(); }
  /// Blocks the calling thread until all enqueued work is done; throws its errors.
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
  /// Untimed events only order work, which costs the device less; nanoseconds_between() needs timed ones.
  enum class Timing { off, on };
  explicit Event(Timing timing = Timing::off);
  void record(const Stream& stream);
  /// Makes work that is enqueued on `stream` from now on wait for this point.
  void hold(const Stream& stream) const;
  /// Blocks the calling thread until the device has reached this point.
  void synchronize() const;
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const;
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};
/// Nanoseconds of device time from one point to the other; the device must have reached both. The resolution
/// is about half a microsecond.
float nanoseconds_between(const Event& from, const Event& to);

/// Memory of the device. allocate() throws Error(usage) naming `what`, the requested bytes and the free
/// bytes.
struct DeviceMemory {
  static void* allocate(std::uint64_t bytes, std::string_view what);
  void operator()(void* data) const;  ///< frees it
};
/// Page-locked host memory, which the device accesses directly. allocate() throws Error(usage) as above.
struct PinnedMemory {
  static void* allocate(std::uint64_t bytes, std::string_view what);
  void operator()(void* data) const;
};

/// `count` uninitialised elements in one of these memories.
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

/// Copies `bytes` between host and device, in order on `stream`. Pinned host memory is read or written when
/// the stream reaches the copy: synchronise before accessing it. Other host memory has been read, or written,
/// when the call returns.
void copy_to_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
void copy_from_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
/// Copies `rows` rows of `bytes`, which lie `from_pitch` and `to_pitch` bytes apart.
void copy_rows_from_device(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                           std::uint64_t bytes, std::uint64_t rows, const Stream& stream);
/// The same from one place on the device to another.
void copy_rows_on_device(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                         std::uint64_t bytes, std::uint64_t rows, const Stream& stream);
void zero(void* data, std::uint64_t bytes, const Stream& stream);

}  // namespace kvsim::model::cuda
