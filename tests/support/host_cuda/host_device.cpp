#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_cuda.hpp"

namespace host_cuda {

/// A recorded point of a stream, which may not be reached yet.
struct Mark {
  Stream* stream = nullptr;
  bool passed = false;
  std::chrono::steady_clock::time_point when;
};

struct Event {
  std::shared_ptr<Mark> mark{};  // of the latest record; null: no record, which counts as reached
  bool timed = true;
};

struct Work {
  std::function<void()> run;
  std::shared_ptr<Mark> after;  // another stream's, or null
};

class Stream {
 public:
  void add(Work work) {
    queue_.push_back(std::move(work));
    if (machine().eager) drain();
  }
  bool idle() const { return queue_.empty(); }
  void drain() {
    while (!queue_.empty()) step();
  }
  static void reach(const std::shared_ptr<Mark>& mark) {
    while (mark != nullptr && !mark->passed) mark->stream->step();
  }

 private:
  void step() {
    if (queue_.empty())
      throw std::logic_error("CUDA on the host: waits for a point that no stream will pass");
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    reach(work.after);
    if (work.run) work.run();
  }

  std::deque<Work> queue_;
};

namespace {

constexpr int kPoison = 0xff;  // a NaN in every float type, and an id that no table has
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kPoisoned = std::size_t{1}
                                  << 20;  // of either end: workspaces are too large to be filled

void poison(std::byte* data, std::size_t bytes) {
  const std::size_t end = std::min(bytes, kPoisoned);
  std::memset(data, kPoison, end);
  std::memset(data + bytes - end, kPoison, end);
}

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};
struct Allocation {
  std::unique_ptr<std::byte, Free> data;
  std::size_t size = 0;
};

/// Memory of one kind.
class Memory {
 public:
  void* allocate(std::size_t bytes) {
    Allocation allocation{std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(std::aligned_alloc(
                              kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment))),
                          bytes};
    std::byte* data = allocation.data.get();
    poison(data, bytes);
    used_ += bytes;
    live_.emplace(data, std::move(allocation));
    return data;
  }
  /// Removes the allocation and returns its memory, which work under way may still touch.
  Allocation release(void* data) {
    const auto found = live_.find(static_cast<std::byte*>(data));
    if (found == live_.end()) throw std::logic_error("CUDA on the host: frees what is not allocated");
    Allocation allocation = std::move(found->second);
    poison(allocation.data.get(), allocation.size);
    used_ -= allocation.size;
    live_.erase(found);
    return allocation;
  }
  bool holds(const void* data, std::size_t bytes) const {
    const auto* from = static_cast<const std::byte*>(data);
    auto after = live_.upper_bound(const_cast<std::byte*>(from));
    if (after == live_.begin()) return false;
    const auto& [start, allocation] = *std::prev(after);
    return static_cast<std::size_t>(from - start) + bytes <= allocation.size;
  }
  std::size_t used() const { return used_; }

 private:
  std::map<std::byte*, Allocation> live_;
  std::size_t used_ = 0;
};

struct State {
  std::recursive_mutex lock;
  Machine machine;
  Memory device, pinned;
  std::set<std::unique_ptr<Stream>> streams;
  std::vector<Allocation> freed;  // while streams have work to do
  cudaError_t last = cudaSuccess;
  Told told;

  bool idle() const {
    return std::all_of(streams.begin(), streams.end(), [](const auto& stream) { return stream->idle(); });
  }
  void let_go(Allocation allocation) {
    freed.push_back(std::move(allocation));
    if (idle()) freed.clear();
  }
};

State& state() {
  static State kState;
  return kState;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) state().last = error;
  return error;
}

/// Runs `body` as a call of the runtime: one call at a time, and only if there is a driver.
template <class Body>
cudaError_t call(Body body) {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  if (machine().driver != cudaSuccess) return answer(machine().driver);
  if (machine().devices == 0) return answer(cudaErrorNoDevice);
  body();
  if (state().idle()) state().freed.clear();
  return cudaSuccess;
}

Stream& checked(cudaStream_t stream) {
  if (stream == nullptr)
    throw std::logic_error("CUDA on the host: the default stream, which waits for no other");
  return *stream;
}

void check_on_host(const void* data, std::size_t bytes) {
  if (state().device.holds(data, bytes))
    throw std::logic_error("CUDA on the host: device memory taken for host memory");
}

struct Copy {
  void* to;
  std::size_t to_pitch;
  const void* from;
  std::size_t from_pitch, bytes, rows;

  std::size_t extent(std::size_t pitch) const { return rows == 0 ? 0 : (rows - 1) * pitch + bytes; }
  void run() const {
    if (bytes == 0) return;  // the pointers may be null
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                  static_cast<const std::byte*>(from) + row * from_pitch, bytes);
  }
};

void copy_to_device(const Copy& copy, Stream& stream) {
  check_on_device(copy.to, copy.extent(copy.to_pitch), "destination of a copy");
  check_on_host(copy.from, copy.extent(copy.from_pitch));
  if (state().pinned.holds(copy.from, copy.extent(copy.from_pitch))) {
    stream.add({[copy] { copy.run(); }, nullptr});
    return;
  }
  // Pageable memory must be read before the call returns.
  const auto* from = static_cast<const std::byte*>(copy.from);
  auto staged = std::make_shared<std::vector<std::byte>>(from, from + copy.extent(copy.from_pitch));
  Copy later = copy;
  later.from = staged->data();
  stream.add({[later, staged] { later.run(); }, nullptr});
}

void copy_to_host(const Copy& copy, Stream& stream) {
  check_on_device(copy.from, copy.extent(copy.from_pitch), "source of a copy");
  check_on_host(copy.to, copy.extent(copy.to_pitch));
  stream.add({[copy] { copy.run(); }, nullptr});
  if (!state().pinned.holds(copy.to, copy.extent(copy.to_pitch))) stream.drain();
}

void copy_on_device(const Copy& copy, Stream& stream) {
  check_on_device(copy.to, copy.extent(copy.to_pitch), "destination of a copy");
  check_on_device(copy.from, copy.extent(copy.from_pitch), "source of a copy");
  stream.add({[copy] { copy.run(); }, nullptr});
}

cudaError_t enqueue_copy(const Copy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] {
    ++state().told.copies;
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return copy_to_device(copy, checked(stream));
      case cudaMemcpyDeviceToHost:
        return copy_to_host(copy, checked(stream));
      case cudaMemcpyDeviceToDevice:
        return copy_on_device(copy, checked(stream));
      default:
        throw std::logic_error("CUDA on the host: copies within the host");
    }
  });
}

cudaError_t allocate(Memory& memory, std::size_t limit, void** data, std::size_t bytes) {
  cudaError_t result = cudaSuccess;
  const cudaError_t called = call([&] {
    if (bytes > limit - std::min(limit, memory.used())) {
      result = answer(cudaErrorMemoryAllocation);
    } else {
      *data = memory.allocate(bytes);
    }
  });
  return called != cudaSuccess ? called : result;
}

cudaError_t release(Memory& memory, void* data) {
  return call([&] {
    if (data != nullptr) state().let_go(memory.release(data));
  });
}

}  // namespace

Machine& machine() {
  return state().machine;
}
std::size_t device_bytes_used() {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  return state().device.used();
}
std::size_t pinned_bytes_used() {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  return state().pinned.used();
}

Told told() {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  return state().told;
}

void enqueue_product(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  ++state().told.products;
  checked(stream).add({std::move(work), nullptr});
}

void check_on_device(const void* data, std::size_t bytes, const char* what) {
  const std::lock_guard<std::recursive_mutex> guard(state().lock);
  if (bytes > 0 && !state().device.holds(data, bytes))
    throw std::logic_error(std::string("CUDA on the host: ") + what + " is not within one device allocation");
}

cudaError_t launch(dim3 blocks, dim3 threads, std::function<void()> thread, cudaStream_t stream) {
  if (machine().launching != cudaSuccess) return answer(machine().launching);
  return call([&] {
    ++state().told.kernels;
    checked(stream).add(
        {[blocks, threads, thread = std::move(thread)] { run_grid(blocks, threads, thread); }, nullptr});
  });
}

}  // namespace host_cuda

using host_cuda::call;
using host_cuda::machine;
using host_cuda::state;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "some error";
  }
}
cudaError_t cudaGetLastError() {
  return std::exchange(state().last, cudaSuccess);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  return call([&] { *count = machine().devices; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  return call([&] { *properties = {"the host", machine().memory, 9, 0, 1}; });
}
cudaError_t cudaSetDevice(int device) {
  if (device >= machine().devices) return host_cuda::answer(cudaErrorInvalidDevice);
  return call([] {});
}
cudaError_t cudaDeviceSynchronize() {
  return call([] {
    for (const auto& stream : state().streams) stream->drain();
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&] {
    *total = machine().memory;
    *free = *total - std::min(*total, state().device.used());
  });
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return host_cuda::allocate(state().device, machine().memory, data, bytes);
}
cudaError_t cudaFree(void* data) {
  return host_cuda::release(state().device, data);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return host_cuda::allocate(state().pinned, machine().pinned, data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  return host_cuda::release(state().pinned, data);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return call([&] { *stream = state().streams.insert(std::make_unique<host_cuda::Stream>()).first->get(); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] {
    stream->drain();
    auto& streams = state().streams;
    streams.erase(
        std::find_if(streams.begin(), streams.end(), [&](const auto& s) { return s.get() == stream; }));
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] { host_cuda::checked(stream).drain(); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&] { host_cuda::checked(stream).add({{}, event->mark}); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] { *event = new host_cuda::Event{nullptr, (flags & cudaEventDisableTiming) == 0}; });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] { delete event; });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] {
    auto mark = std::make_shared<host_cuda::Mark>();
    mark->stream = &host_cuda::checked(stream);
    event->mark = mark;
    mark->stream->add({[mark] {
                         mark->passed = true;
                         mark->when = std::chrono::steady_clock::now();
                       },
                       nullptr});
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool passed = false;
  const cudaError_t called = call([&] { passed = event->mark == nullptr || event->mark->passed; });
  return called == cudaSuccess && !passed ? cudaErrorNotReady : called;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] { host_cuda::Stream::reach(event->mark); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->timed || !to->timed) return host_cuda::answer(cudaErrorInvalidResourceHandle);
  bool passed = false;
  const cudaError_t called = call([&] {
    passed = from->mark != nullptr && to->mark != nullptr && from->mark->passed && to->mark->passed;
    if (passed)
      *milliseconds = std::chrono::duration<float, std::milli>(to->mark->when - from->mark->when).count();
  });
  return called == cudaSuccess && !passed ? cudaErrorNotReady : called;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return host_cuda::enqueue_copy({to, bytes, from, bytes, bytes, 1}, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > to_pitch || bytes > from_pitch) return host_cuda::answer(cudaErrorInvalidValue);
  return host_cuda::enqueue_copy({to, to_pitch, from, from_pitch, bytes, rows}, kind, stream);
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&] {
    host_cuda::check_on_device(data, bytes, "memory to set");
    host_cuda::checked(stream).add({[=] {
                                      if (bytes > 0) std::memset(data, value, bytes);
                                    },
                                    nullptr});
  });
}
