#include "traces/model/cuda/cuda_error.hpp"

#include <string>

#include "sim/base/error.hpp"
#include "traces/model/cuda/cuda_device.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr std::string_view kWhere = "--device";

[[noreturn]] void driver_too_old() {
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));  // the version stays 0 without a driver
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  const std::string needed = version_text(runtime);
  const std::string what = driver == 0
                               ? "no NVIDIA driver is installed; this kvsim needs one for CUDA " + needed
                               : "the NVIDIA driver supports CUDA " + version_text(driver) +
                                     ", this kvsim was built for CUDA " + needed;
  usage_error(what, kWhere, "Install a newer driver, build kvsim with an older CUDA, or use --device cpu.");
}

}  // namespace

void fail(cudaError_t status, std::string_view doing) {
  const std::string told = std::string(cudaGetErrorString(status)) + ", while " + std::string(doing);
  switch (status) {
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
      driver_too_old();
    case cudaErrorNoDevice:
      usage_error("no CUDA device was found", kWhere,
                  "Does nvidia-smi list one, and CUDA_VISIBLE_DEVICES let it through? Or use --device cpu.");
    case cudaErrorMemoryAllocation:
      usage_error("the CUDA device is out of memory, while " + std::string(doing), kWhere, kLessMemory);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      usage_error("this kvsim holds no code for the CUDA device (" + told + ")", kWhere,
                  "Configure with -DCMAKE_CUDA_ARCHITECTURES=native on this machine.");
    case cudaErrorDevicesUnavailable:
      usage_error("the CUDA device is taken by another process or not allowed to compute (" + told + ")",
                  kWhere, "Wait for it, choose another by cuda:N, or use --device cpu.");
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorOperatingSystem:
    case cudaErrorUnknown:
      usage_error("the CUDA driver does not work (" + told + ")", kWhere,
                  "Does nvidia-smi work? Restart the machine after a driver update, or use --device cpu.");
    default:
      bug("CUDA: " + told, kWhere);
  }
}

}  // namespace kvsim::model::cuda
