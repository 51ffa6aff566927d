#include "traces/model/cuda/cuda_device.hpp"

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "traces/model/cuda/cuda_error.hpp"

namespace kvsim::model::cuda {
namespace {

cudaDeviceProp properties(unsigned index) {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, static_cast<int>(index)), "asking what the device is");
  return found;
}

std::string devices_there_are(unsigned count) {
  std::string text = "There is:";
  for (unsigned index = 0; index < count; ++index) {
    const cudaDeviceProp device = properties(index);
    text += (index == 0 ? " cuda:" : ", cuda:") + std::to_string(index) + " (" + device.name + ", " +
            bytes_text(device.totalGlobalMem) + ")";
  }
  return text + ".";
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const char* no_device() {
  int driver = 0, found = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
  const cudaError_t status = cudaGetDeviceCount(&found);
  static_cast<void>(cudaGetLastError());  // clears the error, so that the next call does not report it
  return status == cudaErrorNoDevice || (status == cudaSuccess && found == 0) ? "there is no CUDA device"
                                                                              : nullptr;
}

DeviceDescription open_device(unsigned index) {
  int found = 0;
  check(cudaGetDeviceCount(&found), "looking for devices");
  const auto count = static_cast<unsigned>(found);
  if (count == 0) check(cudaErrorNoDevice, "looking for devices");
  if (index >= count)
    usage_error("there is no CUDA device " + std::to_string(index), "--device", devices_there_are(count));
  check(cudaSetDevice(static_cast<int>(index)), "choosing the device");
  check(cudaFree(nullptr), "opening the device");  // creates the context now, so that a failure is reported
                                                   // here
  const cudaDeviceProp device = properties(index);
  DeviceDescription described;
  described.index = index;
  described.name = device.name;
  described.major = device.major;
  described.minor = device.minor;
  described.memory = device.totalGlobalMem;
  described.multiprocessors = device.multiProcessorCount;
  check(cudaDriverGetVersion(&described.driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&described.runtime), "asking for the runtime's version");
  return described;
}

MemoryState device_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the free memory");
  return {free, total};
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
}
void Stream::Destroy::operator()(cudaStream_t stream) const {
  static_cast<void>(cudaStreamDestroy(stream));
}
void Stream::synchronize() const {
  check(cudaStreamSynchronize(get()), "computing");
}

Event::Event(Timing timing) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming),
        "making an event");
  event_.reset(event);
}
void Event::Destroy::operator()(cudaEvent_t event) const {
  static_cast<void>(cudaEventDestroy(event));
}
void Event::record(const Stream& stream) {
  check(cudaEventRecord(get(), stream.get()), "recording an event");
}
void Event::hold(const Stream& stream) const {
  check(cudaStreamWaitEvent(stream.get(), get(), 0), "waiting for an event");
}
void Event::synchronize() const {
  check(cudaEventSynchronize(get()), "computing");
}
float nanoseconds_between(const Event& from, const Event& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "reading the device's clock");
  return milliseconds * 1e6F;
}

void* DeviceMemory::allocate(std::uint64_t bytes, std::string_view what) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error, so that the next call does not report it
    const MemoryState state = device_memory();
    usage_error(std::string(what) + " needs " + bytes_text(bytes) + " on the CUDA device, " +
                    bytes_text(state.free) + " of " + bytes_text(state.total) + " are free",
                "--device", kLessMemory);
  }
  check(status, "allocating " + std::string(what));
  return data;
}
void DeviceMemory::operator()(void* data) const {
  static_cast<void>(cudaFree(data));
}

void* PinnedMemory::allocate(std::uint64_t bytes, std::string_view what) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    usage_error(std::string(what) + " needs " + bytes_text(bytes) +
                    " of this machine's memory, page-locked; the driver refused them",
                "--device", "Free memory, or shorten the prompt.");
  }
  check(status, "allocating " + std::string(what));
  return data;
}
void PinnedMemory::operator()(void* data) const {
  static_cast<void>(cudaFreeHost(data));
}

void copy_to_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream.get()), "copying to the device");
}
void copy_from_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream.get()), "copying from the device");
}
void copy_rows_from_device(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                           std::uint64_t bytes, std::uint64_t rows, const Stream& stream) {
  check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDeviceToHost, stream.get()),
        "copying from the device");
}
void copy_rows_on_device(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                         std::uint64_t bytes, std::uint64_t rows, const Stream& stream) {
  check(
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDeviceToDevice, stream.get()),
      "copying on the device");
}
void zero(void* data, std::uint64_t bytes, const Stream& stream) {
  check(cudaMemsetAsync(data, 0, bytes, stream.get()), "clearing memory of the device");
}

}  // namespace kvsim::model::cuda
