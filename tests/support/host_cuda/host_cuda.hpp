#pragma once
/// The machine that the CUDA calls of this process find, and its strictness. Work on a stream is deferred
/// until a call waits for it, and then only the awaited work is done, so a missing synchronisation reliably
/// gives wrong results. Memory holds NaN (in its first and last MiB) when it is allocated and again when it
/// is freed. Every copy and matrix must lie in one allocation; a kernel whose threads do not all reach a
/// barrier is reported. Misuse throws std::logic_error.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace host_cuda {

/// The order in which the threads of a block, and the blocks of a grid, take their turns.
enum class Order { forward, backward, shuffled };

struct Machine {
  int devices = 2;
  cudaError_t driver = cudaSuccess;  ///< result of the first call: no driver, wrong driver, ...
  int driver_version = CUDART_VERSION;
  std::size_t memory = std::size_t{1} << 30;  ///< device memory in bytes
  std::size_t pinned = std::size_t{1} << 30;  ///< most bytes that can be page-locked
  cudaError_t launching = cudaSuccess;        ///< result of starting a kernel
  Order order = Order::forward;
  bool eager = false;  ///< work is done at once, as if the device were infinitely fast
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

/// How often the process has told the device to do something: each costs a few microseconds to start, which
/// is most of what a step that generates one token takes.
struct Told {
  std::size_t products = 0, kernels = 0, copies = 0;  ///< calls of cuBLAS, own kernels, copies of any kind
  bool operator==(const Told&) const = default;
  Told operator-(const Told& before) const {
    return {products - before.products, kernels - before.kernels, copies - before.copies};
  }
};
Told told();

/// For cuBLAS: does `work`, a product, when the stream reaches it.
void enqueue_product(cudaStream_t stream, std::function<void()> work);
/// Throws unless [data, data + bytes) lies in one allocation of the device.
void check_on_device(const void* data, std::size_t bytes, const char* what);
/// Runs a grid now.
void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

}  // namespace host_cuda
