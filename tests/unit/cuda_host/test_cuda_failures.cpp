// Tests failures of a device on the host stand-in, which can produce them: each ends with exit code 2 and
// advice, and no file is left.
#include <catch2/catch.hpp>
#include <filesystem>

#include "host_cuda.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/model/golden_run.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/capture.hpp"
#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/cuda_run.hpp"
#include "traces/model/cuda/device_attention.hpp"

namespace kvsim::model {
namespace {

using Catch::Matchers::Contains;
using host_cuda::machine;

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

capture::CaptureOptions options_in(const test::Scratch& scratch, const std::string& device = "cuda") {
  capture::CaptureOptions options;
  options.model_dir = KVSIM_SOURCE_DIR "/tests/golden/capture/llama_tied";
  options.tokens_file = scratch.file("ids.txt");
  options.output = scratch.file("run.h5");
  options.device = device;
  options.max_new_tokens = 3;
  std::ofstream(options.tokens_file) << "10 20 30 40 50 60 70 80 90 100 110";
  return options;
}

/// The message of a failing capture; "" if it succeeds.
std::string problem(const capture::CaptureOptions& options, ErrorKind kind = ErrorKind::usage) {
  try {
    Progress progress;
    capture::run_capture(options, progress);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(options.output).parent_path()))
      CHECK_FALSE(entry.path().native().starts_with(options.output));
    CHECK(host_cuda::device_bytes_used() == 0);
    CHECK(host_cuda::pinned_bytes_used() == 0);
    return error.what();
  }
  std::filesystem::remove(options.output);
  return {};
}

}  // namespace

TEST_CASE("no device, no driver, the wrong driver") {
  const test::Scratch scratch;
  const host_cuda::Restored restored;
  CHECK_THAT(problem(options_in(scratch, "cuda:7")), Contains("no CUDA device 7") && Contains("cuda:1"));
  machine().devices = 0;
  CHECK_THAT(problem(options_in(scratch)), Contains("no CUDA device"));
  machine().driver = cudaErrorInsufficientDriver;
  machine().driver_version = 11040;
  CHECK_THAT(problem(options_in(scratch)), Contains("supports CUDA 11.4") && Contains("newer driver"));
  CHECK(cuda::no_device() == nullptr);  // something is there, and does not work
  machine().driver_version = 0;
  CHECK_THAT(problem(options_in(scratch)), Contains("no NVIDIA driver"));
  CHECK_THAT(cuda::no_device(), Contains("no NVIDIA driver"));
}

TEST_CASE("tests are skipped for want of a device, and for nothing else") {
  const host_cuda::Restored restored;
  CHECK(cuda::no_device() == nullptr);
  for (const cudaError_t broken : {cudaErrorSystemNotReady, cudaErrorMemoryAllocation, cudaErrorUnknown}) {
    machine().driver = broken;
    CHECK(cuda::no_device() == nullptr);
  }
  machine().driver = cudaErrorNoDevice;
  CHECK_THAT(cuda::no_device(), Contains("no CUDA device"));
  machine().driver = cudaSuccess;
  machine().devices = 0;
  CHECK_THAT(cuda::no_device(), Contains("no CUDA device"));
}

TEST_CASE("a driver that does not work is told with advice") {
  const test::Scratch scratch;
  const host_cuda::Restored restored;
  for (const cudaError_t broken : {cudaErrorStubLibrary, cudaErrorOperatingSystem, cudaErrorUnknown}) {
    machine().driver = broken;
    CHECK_THAT(problem(options_in(scratch)), Contains("the CUDA driver does not work"));
  }
  machine().driver = cudaErrorCallRequiresNewerDriver;
  machine().driver_version = 11040;
  CHECK_THAT(problem(options_in(scratch)), Contains("newer driver"));
}

TEST_CASE("events that only order work have no time") {
  const cuda::Stream stream;
  cuda::Event untimed, timed{cuda::Event::Timing::on};
  untimed.record(stream);
  timed.record(stream);
  stream.synchronize();
  CHECK_THROWS_AS(cuda::nanoseconds_between(untimed, timed), Error);
  CHECK(cuda::nanoseconds_between(timed, timed) == 0);
}

TEST_CASE("a run's need of memory is checked before anything is allocated") {
  const test::Scratch scratch;
  const host_cuda::Restored restored;
  machine().memory = 100 * kMebibyte;
  capture::CaptureOptions options = options_in(scratch);
  options.compute = "f32";
  const std::string told = problem(options);
  CHECK_THAT(told, Contains("weights 233.5 KiB") && Contains("cache of 14 tokens") &&
                       Contains("passes of 11 tokens"));
  CHECK_THAT(told,
             Contains("of 100 MiB are free") && Contains("--prefill-chunk") && Contains("--compute bf16"));
  options.compute = "bf16";
  CHECK_THAT(problem(options), Contains("weights 117.4 KiB") && !Contains("--compute"));
}

TEST_CASE("a cache beyond any memory is refused, not attempted") {
  const GoldenCheckpoint golden("llama_tied");
  for (const int bits : {27, 28, 44, 63}) {
    CHECK_THROWS_WITH(
        cuda::open_cuda_run(0, golden.config, golden.weights, {.capacity = std::uint64_t{1} << bits}),
        Contains(bits <= 28 ? "the run needs" : "beyond any device"));
  }
}

TEST_CASE("memory that runs out at any point leaves nothing behind") {
  const test::Scratch scratch;
  const host_cuda::Restored restored;
  // Another program takes memory after the check, so that less and less is free.
  bool ran = false, failed = false;
  for (std::size_t kibibytes = 64; !ran; kibibytes += kibibytes / 2) {
    machine().pinned = kibibytes << 10;
    const std::string told = problem(options_in(scratch));
    ran = told.empty();
    failed = failed || !ran;
    if (!ran) CHECK_THAT(told, Contains("page-locked"));
  }
  CHECK(failed);
}

TEST_CASE("a device that breaks while it computes") {
  const test::Scratch scratch;
  const host_cuda::Restored restored;
  machine().launching = cudaErrorNoKernelImageForDevice;
  CHECK_THAT(problem(options_in(scratch)), Contains("no code for the CUDA device"));
  machine().launching = cudaErrorIllegalAddress;
  CHECK_THAT(problem(options_in(scratch), ErrorKind::bug), Contains("CUDA"));
}

TEST_CASE("a run takes the memory that it announces") {
  const GoldenCheckpoint golden("qwen3_qk_norm");
  const std::vector<std::int32_t> tokens = golden.tokens();
  const host_cuda::Restored restored;
  const auto used = [&](Elem compute) {
    const auto model =
        cuda::open_cuda_run(0, golden.config, golden.weights,
                            {.capacity = 40, .elem = compute, .compute = compute, .pass_tokens = 40});
    RunObserver nobody;
    model->forward(tokens, nobody);
    return host_cuda::device_bytes_used();
  };
  for (const Elem compute : {Elem::f32, Elem::bf16}) {
    const std::size_t taken = used(compute);
    // The 256 MiB for cuBLAS and the code of kernels include the workspace of 32 MiB.
    const std::size_t needed = taken + (256 - 32) * kMebibyte;
    machine().memory = needed;
    CHECK(used(compute) == taken);
    machine().memory = needed - 1;
    CHECK_THROWS_WITH(used(compute), Contains("the run needs"));
    machine().memory = std::size_t{1} << 30;
  }
}

TEST_CASE("attention takes a whole block's workspace on a device with much memory, and less with little") {
  const GoldenCheckpoint golden("llama_tied");
  const ModelConfig& config = golden.config;
  const host_cuda::Restored restored;
  const auto used = [&](std::uint64_t mebibytes, std::uint64_t capacity, std::uint64_t pass) {
    machine().memory = mebibytes * kMebibyte;
    const auto model =
        cuda::open_cuda_run(0, golden.config, golden.weights, {.capacity = capacity, .pass_tokens = pass});
    return host_cuda::device_bytes_used();
  };
  const auto block = [&](std::uint64_t queries, std::uint64_t capacity) {
    return cuda::DeviceAttention<float>::bytes_of_block(config.n_heads, config.head_dim, queries, capacity);
  };
  // 4 heads and 65,536 keys: 1 MiB of scores for each query, and some more for what goes in and out. Of 8 GiB
  // attention may take an eighth, but no more queries are in a block; of 1 GiB it may take 256 MiB.
  const std::uint64_t capacity = 65536;
  CHECK(used(8192, capacity, 600) - used(1024, capacity, 600) == block(512, capacity) - block(128, capacity));
  CHECK(used(8192, capacity, 20) == used(320, capacity, 20));
  {
    // What others take changes nothing: blocks of another size might have other bits.
    const std::size_t alone = used(8192, capacity, 600);
    const cuda::DeviceBytes taken(7000 * kMebibyte, "something else");
    CHECK(used(8192, capacity, 600) == taken.size() + alone);
  }

  // A context so long that its cache leaves less than an eighth of the memory: 2 GiB each of keys and values.
  // The scores of a query take 128 MiB: attention takes two of them where 600 MiB are left, not four.
  const std::uint64_t longest = std::uint64_t{1} << 23;
  const std::size_t others = used(65536, longest, 20) - block(20, longest);
  const std::size_t left = others / kMebibyte + (256 - 32) + 600;
  CHECK(left / 8 > 512);
  CHECK(used(left, longest, 20) == others + block(2, longest));
}

TEST_CASE("work reaches the host in order for a device of any speed") {
  const GoldenCheckpoint golden("qwen2_late_window");
  const auto run = [&] {
    const auto model =
        cuda::open_cuda_run(0, golden.config, golden.weights, {.capacity = golden.tokens().size()});
    return record(*model, golden, 16);
  };
  const Run lazy = run();
  const host_cuda::Restored restored;
  machine().eager = true;
  machine().order = host_cuda::Order::shuffled;
  const Run eager = run();
  CHECK((eager.recorder.q == lazy.recorder.q));
  CHECK((eager.recorder.k == lazy.recorder.k));
  CHECK((eager.recorder.v == lazy.recorder.v));
  CHECK((eager.recorder.rows == lazy.recorder.rows));
  CHECK((eager.recorder.out == lazy.recorder.out));
  CHECK((eager.logits == lazy.logits));
}

}  // namespace kvsim::model
