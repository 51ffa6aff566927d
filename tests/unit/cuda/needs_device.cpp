// Without a device these tests cannot run: the program says so and ends as skipped before its first test.
#include <cstdio>
#include <cstdlib>

#include "sim/base/error.hpp"
#include "traces/model/cuda/cuda_device.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr int kSkipped = 77;  // the SKIP_RETURN_CODE of tests/CMakeLists.txt

[[maybe_unused]] const DeviceDescription kDevice = [] {
  try {
    return open_device(0);
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    std::exit(kSkipped);
  }
}();

}  // namespace
}  // namespace kvsim::model::cuda
