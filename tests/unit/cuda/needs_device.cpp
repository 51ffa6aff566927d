// Without a device these tests cannot run: the program says so and ends as skipped before its first test. A
// device or driver that does not work is a failure of the tests that find it.
#include <cstdio>
#include <cstdlib>

#include "traces/model/cuda/cuda_device.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr int kSkipped = 77;  // the SKIP_RETURN_CODE of tests/CMakeLists.txt

[[maybe_unused]] const bool kChecked = [] {
  if (const char* why = no_device()) {
    std::printf("skipped: %s\n", why);
    std::exit(kSkipped);
  }
  return true;
}();

}  // namespace
}  // namespace kvsim::model::cuda
