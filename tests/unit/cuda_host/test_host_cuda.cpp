// Tests the host stand-in for a device: it must be adverse enough to expose mistakes.
#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>

#include "host_cuda.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/cuda/on_device.hpp"
#include "traces/model/cuda/cuda_error.hpp"
#include "traces/model/cuda/device_attention.hpp"

namespace kvsim::model::cuda {
namespace {

using Catch::Matchers::Contains;
using host_cuda::machine;
using host_cuda::Order;
using host_cuda::Restored;

constexpr std::uint64_t kCount = 64;

void ignore(const AttentionRows&) {}

/// Runs every kernel once on fixed numbers and returns all results.
std::vector<float> everything() {
  const Stream stream;
  MatrixProduct product(stream);
  std::vector<float> results;
  const auto keep = [&](const std::vector<float>& values) {
    results.insert(results.end(), values.begin(), values.end());
  };
  const std::uint64_t n = 37, width = 320;
  const auto x = on_device(random_floats(n * width, 1), stream),
             up = on_device(random_floats(n * width, 2), stream);
  rms_norm(x.data(), n, width, up.data(), 1e-6F, x.data(), stream.get());
  swiglu(x.data(), up.data(), n * width, stream.get());
  add_to(x.data(), up.data(), n * width, stream.get());
  HeadScatter scatter;
  scatter.heads = 5;
  scatter.dim = 64;
  scatter.n = scatter.capacity = n;
  scatter.norm = scatter.cosine = scatter.sine = up.data();
  scatter.rotary = 32;
  const DeviceArray<float> q(n * width, "q"), out(n * width, "out");
  split_heads(scatter, x.data(), q.data(), stream.get());
  DeviceAttention<float> attention(5, 64, n, 40000);
  const DeviceArray<double> sums(2 * 5 * n, "sums");
  zero(sums.data(), sums.size() * sizeof(double), stream);
  const DeviceAttentionInput<float> input{5, 5, 64, 9, 0, n, q.data(), x.data(), up.data(), n};
  attention.attend(product, stream, input, out.data(), n, ignore, {sums.data(), sums.data() + 5 * n, n});
  const DeviceArray<Greedy> chosen(n, "choices");
  choose_greedily(out.data(), n, width, chosen.data(), stream.get());
  keep(from_device(x, stream));
  keep(from_device(q, stream));
  keep(from_device(out, stream));
  for (const double value : from_device(sums, stream)) results.push_back(static_cast<float>(value));
  for (const Greedy& choice : from_device(chosen, stream)) {
    keep({static_cast<float>(choice.id), choice.logit, choice.log_sum_exp});
  }
  return results;
}

__global__ void add_neighbour_without_barrier(float* x) {
  x[threadIdx.x] += x[(threadIdx.x + 1) % blockDim.x];
}
__global__ void barrier_for_some(float*) {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void failing(float*) {
  throw std::runtime_error("inside the kernel");
}

void start(void (*kernel)(float*), float* x, const Stream& stream) {
  void* arguments[] = {&x};
  check(cudaLaunchKernel(kernel, dim3(1), dim3(kCount), arguments, 0, stream.get()), "starting a kernel");
}

}  // namespace

TEST_CASE("no result depends on the order of threads and blocks, or on when work is done") {
  const Restored restored;
  const std::vector<float> expected = everything();
  for (const Order order : {Order::forward, Order::backward, Order::shuffled}) {
    for (const bool eager : {false, true}) {
      machine().order = order;
      machine().eager = eager;
      const std::vector<float> found = everything();
      REQUIRE(found.size() == expected.size());
      CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a race between threads shows as soon as their order changes") {
  const Restored restored;
  const Stream stream;
  const auto sum_in = [&](Order order) {
    machine().order = order;
    const auto x = on_device(std::vector<float>(kCount, 1.0F), stream);
    start(add_neighbour_without_barrier, x.data(), stream);
    return from_device(x, stream);
  };
  CHECK(sum_in(Order::forward) != sum_in(Order::backward));
}

TEST_CASE("results are missing until they are waited for") {
  const Stream computing, copying;
  const std::vector<float> ones(kCount, 1.0F), twos(kCount, 2.0F);
  const auto x = on_device(ones, computing), y = on_device(ones, computing);
  const PinnedArray<float> pinned(kCount, "a test's buffer");
  computing.synchronize();

  SECTION("a copy from the device, before its stream is synchronised") {
    copy_from_device(pinned.data(), x.data(), kCount * sizeof(float), copying);
    CHECK(std::isnan(pinned.data()[0]));
    copying.synchronize();
    CHECK(pinned.data()[0] == 1.0F);
  }
  SECTION("another stream's result, without an event") {
    add_to(x.data(), y.data(), kCount, computing.get());
    copy_from_device(pinned.data(), x.data(), kCount * sizeof(float), copying);
    copying.synchronize();
    CHECK(pinned.data()[0] == 1.0F);  // the earlier sum
  }
  SECTION("another stream's result, with an event") {
    add_to(x.data(), y.data(), kCount, computing.get());
    Event added;
    added.record(computing);
    added.hold(copying);
    copy_from_device(pinned.data(), x.data(), kCount * sizeof(float), copying);
    copying.synchronize();
    CHECK(pinned.data()[0] == 2.0F);
  }
  SECTION("pinned memory that is reused before it is read") {
    std::copy(ones.begin(), ones.end(), pinned.data());
    copy_to_device(x.data(), pinned.data(), kCount * sizeof(float), copying);
    std::copy(twos.begin(), twos.end(), pinned.data());
    CHECK(from_device(x, copying)[0] == 2.0F);
  }
  SECTION("memory that is freed while a kernel uses it") {
    {
      const auto freed = on_device(ones, computing);
      computing.synchronize();
      add_to(x.data(), freed.data(), kCount, computing.get());
    }
    CHECK(std::isnan(from_device(x, computing)[0]));
  }
  SECTION("memory that was never written") {
    const DeviceArray<float> fresh(kCount, "fresh");
    CHECK(std::isnan(from_device(fresh, computing)[0]));
  }
}

TEST_CASE("events give times only after they have passed") {
  const Stream stream;
  Event before{Event::Timing::on}, after{Event::Timing::on};
  before.record(stream);
  const auto x = on_device(random_floats(kCount, 1), stream);
  add_to(x.data(), x.data(), kCount, stream.get());
  after.record(stream);
  CHECK_THROWS_AS(nanoseconds_between(before, after), Error);
  after.synchronize();
  CHECK(nanoseconds_between(before, after) > 0);
}

TEST_CASE("kernels that go wrong are reported, and the next one runs") {
  const Stream stream;
  const auto x = on_device(std::vector<float>(kCount, 1.0F), stream);
  start(barrier_for_some, x.data(), stream);
  CHECK_THROWS_WITH(stream.synchronize(), Contains("not every thread reaches the barrier"));
  start(failing, x.data(), stream);
  CHECK_THROWS_WITH(stream.synchronize(), "inside the kernel");
  CHECK_THROWS_AS(copy_from_device(x.data(), x.data(), 4, stream), std::logic_error);
  std::vector<float> small(kCount + 1);
  CHECK_THROWS_AS(copy_to_device(x.data(), small.data(), small.size() * sizeof(float), stream),
                  std::logic_error);
  add_to(x.data(), x.data(), kCount, stream.get());
  CHECK(from_device(x, stream)[0] == 2.0F);
}

TEST_CASE("devices: their number, their description, and their memory to the last byte") {
  const Restored restored;
  const DeviceDescription device = open_device(1);
  CHECK(device.index == 1);
  CHECK(device.name == "the host");
  CHECK(device.memory == machine().memory);
  CHECK(version_text(device.runtime) == "13.0");
  CHECK(version_text(12080) == "12.8");
  CHECK_THROWS_WITH(open_device(2),
                    Contains("no CUDA device 2") && Contains("cuda:0 (the host, 1 GiB), cuda:1"));

  machine().memory = host_cuda::device_bytes_used() + 1000;
  const DeviceBytes all(1000, "everything");
  CHECK(device_memory().free == 0);
  CHECK_THROWS_WITH(DeviceBytes(std::uint64_t{3} << 30, "the cache"),
                    Contains("the cache needs 3 GiB") && Contains("0 B of") && Contains("--device cpu"));
  machine().pinned = 10;
  CHECK_THROWS_WITH(PinnedBytes(11, "the buffers"), Contains("the buffers needs") && Contains("page-locked"));
}

TEST_CASE("CUDA status codes and kvsim's messages") {
  const Restored restored;
  const auto told = [](cudaError_t status, ErrorKind kind) -> std::string {
    try {
      check(status, "testing");
    } catch (const Error& error) {
      CHECK(error.kind() == kind);
      return error.what();
    }
    return {};
  };
  CHECK(told(cudaSuccess, ErrorKind::bug).empty());
  CHECK_THAT(told(cudaErrorNoDevice, ErrorKind::usage), Contains("no CUDA device") && Contains("nvidia-smi"));
  machine().driver_version = 12020;
  CHECK_THAT(told(cudaErrorInsufficientDriver, ErrorKind::usage),
             Contains("supports CUDA 12.2") && Contains("built for CUDA 13.0"));
  machine().driver_version = 0;
  CHECK_THAT(told(cudaErrorInsufficientDriver, ErrorKind::usage), Contains("no NVIDIA driver"));
  CHECK_THAT(told(cudaErrorNoKernelImageForDevice, ErrorKind::usage), Contains("CMAKE_CUDA_ARCHITECTURES"));
  CHECK_THAT(told(cudaErrorMemoryAllocation, ErrorKind::usage), Contains("out of memory, while testing"));
  CHECK_THAT(told(cudaErrorDevicesUnavailable, ErrorKind::usage), Contains("another process"));
  CHECK_THAT(told(cudaErrorSystemDriverMismatch, ErrorKind::usage), Contains("driver does not work"));
  CHECK_THAT(told(cudaErrorIllegalAddress, ErrorKind::bug),
             Contains("illegal memory access") && Contains("testing"));
}

}  // namespace kvsim::model::cuda
