#pragma once
/// The machine that the CUDA calls of this process find, and how mean it is. Work given to a stream is put
/// off until somebody waits for it, and then only what that somebody waits for is done: a missing
/// synchronisation gives wrong results instead of luck. Memory holds NaN (the first and last MiB of it)
/// when it is allocated and again when it is freed. Every copy and matrix is checked to lie in one
/// allocation; a kernel whose threads do not all reach a barrier is reported. Misuse throws std::logic_error.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace host_cuda {

/// The order in which the threads of a block, and the blocks of a grid, take their turns.
enum class Order { forward, backward, shuffled };

struct Machine {
  int devices = 2;
  cudaError_t driver = cudaSuccess;  ///< what the first call answers: no driver, wrong driver, ...
  int driver_version = CUDART_VERSION;
  std::size_t memory = std::size_t{1} << 30;  ///< of the device, bytes
  std::size_t pinned = std::size_t{1} << 30;  ///< most that can be page-locked
  cudaError_t launching = cudaSuccess;        ///< what starting a kernel answers
  Order order = Order::forward;
  bool eager = false;  ///< work is done as it is given, as if the device were infinitely fast
};
Machine& machine();

/// Restores the machine when it goes out of scope.
class Restored {
 public:
  Restored() : before_(machine()) {}
  ~Restored() { machine() = before_; }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  Machine before_;
};

/// Bytes allocated and not freed.
std::size_t device_bytes_used();
std::size_t pinned_bytes_used();

/// For what stands beside the runtime (cuBLAS): does `work` when the stream gets there.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// Throws unless [data, data + bytes) lies in one allocation of the device.
void check_on_device(const void* data, std::size_t bytes, const char* what);
/// Runs a grid now.
void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

}  // namespace host_cuda
