#include "traces/model/cuda/cublas_library.hpp"

#include <dlfcn.h>

#include <string>

#include "sim/base/error.hpp"

namespace kvsim::model::cuda {
namespace {

const std::string kFile = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);

[[noreturn]] void refuse() {
  const char* told = ::dlerror();
  usage_error(kFile + " cannot be used: " + (told != nullptr ? told : "no reason was given"), "--device",
              "Install cuBLAS of CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
                  " where the dynamic linker finds it (LD_LIBRARY_PATH), or use --device cpu.");
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) refuse();
}

CublasLibrary load() {
  void* library = ::dlopen(kFile.c_str(), RTLD_NOW | RTLD_LOCAL);  // loaded until the process ends
  if (library == nullptr) refuse();
  CublasLibrary found{};
  find(library, "cublasCreate_v2", found.create);
  find(library, "cublasDestroy_v2", found.destroy);
  find(library, "cublasGetVersion_v2", found.get_version);
  find(library, "cublasSetStream_v2", found.set_stream);
  find(library, "cublasSetWorkspace_v2", found.set_workspace);
  find(library, "cublasSetMathMode", found.set_math_mode);
  find(library, "cublasGemmStridedBatchedEx", found.gemm_strided_batched);
  return found;
}

}  // namespace

const CublasLibrary& cublas_library() {
  static const CublasLibrary kLibrary = load();
  return kLibrary;
}

}  // namespace kvsim::model::cuda
