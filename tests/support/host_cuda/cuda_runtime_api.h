#pragma once
/// The part of CUDA that kvsim uses, on the processor. Names, numbers and meanings are CUDA's; host_cuda.hpp
/// describes the machine and its strictness. Include paths put this header in place of CUDA's own of the same
/// name.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define CUDART_VERSION 13000

// The runtime ---------------------------------------------------------------------------------------------

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorStubLibrary = 34,
  cudaErrorInsufficientDriver = 35,
  cudaErrorCallRequiresNewerDriver = 36,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorOperatingSystem = 304,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorCompatNotSupportedOnDevice = 804,
  cudaErrorUnknown = 999,
};
using cudaError_t = cudaError;

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1) : x(x_in), y(y_in), z(z_in) {}
};
struct uint3 {
  unsigned x, y, z;
};

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;

namespace host_cuda {
class Stream;
struct Event;
}  // namespace host_cuda
using cudaStream_t = host_cuda::Stream*;
using cudaEvent_t = host_cuda::Event*;

constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMallocHost(void** data, std::size_t bytes);
cudaError_t cudaFreeHost(void* data);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);

namespace host_cuda {
/// `thread` is called once per thread of the grid, with threadIdx and the like set.
cudaError_t launch(dim3 blocks, dim3 threads, std::function<void()> thread, cudaStream_t stream);
}  // namespace host_cuda

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, void** arguments,
                             std::size_t, cudaStream_t stream) {
  const auto read = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Parameters...>(*static_cast<Parameters*>(arguments[I])...);
  };
  return host_cuda::launch(
      blocks, threads,
      [kernel, values = read(std::index_sequence_for<Parameters...>())] { std::apply(kernel, values); },
      stream);
}

// The language of kernels ---------------------------------------------------------------------------------

#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other, under one lock

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void __syncthreads();

inline std::uint32_t __float_as_uint(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace host_cuda {
/// Every lane of the warp calls it, and each gets the bits of lane (own ^ distance).
std::uint32_t exchange(std::uint32_t bits, unsigned distance);
}  // namespace host_cuda

template <class Value>
Value __shfl_xor_sync(unsigned /*lanes*/, Value value, int distance) {
  static_assert(sizeof(Value) == sizeof(std::uint32_t), "four bytes at a time");
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits = host_cuda::exchange(bits, static_cast<unsigned>(distance));
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
