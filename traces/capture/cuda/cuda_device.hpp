#pragma once
/// The device a run works on, and what lies and runs on it.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvsim::capture::cuda {

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

/// Bytes on the device, uninitialised. Throws Error(usage) naming `what`, the bytes asked for and those free.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(std::uint64_t bytes, std::string_view what);
  void* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Free> data_;
  std::uint64_t size_ = 0;
};

/// Page-locked bytes of the processor, which the device reads and writes by itself.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(std::uint64_t bytes, std::string_view what);
  void* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Free> data_;
  std::uint64_t size_ = 0;
};

/// Either of them as an array.
template <class T, class Bytes>
class TypedBytes {
 public:
  TypedBytes() = default;
  TypedBytes(std::uint64_t count, std::string_view what) : bytes_(count * sizeof(T), what) {}
  T* data() const { return static_cast<T*>(bytes_.data()); }
  std::uint64_t size() const { return bytes_.size() / sizeof(T); }

 private:
  Bytes bytes_;
};
template <class T>
using DeviceArray = TypedBytes<T, DeviceBytes>;
template <class T>
using PinnedArray = TypedBytes<T, PinnedBytes>;

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

}  // namespace kvsim::capture::cuda
