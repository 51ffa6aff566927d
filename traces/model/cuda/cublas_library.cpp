#include "traces/model/cuda/cublas_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim::model::cuda {
namespace {

const std::string kFile = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);

[[noreturn]] void refuse(const std::string& why) {
  usage_error(kFile + " cannot be used: " + why, "--device",
              "Install cuBLAS of CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
                  " where the dynamic linker finds it (LD_LIBRARY_PATH) or in the folder CUDA_HOME, or use "
                  "--device cpu.");
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) refuse(std::string("it has no ") + name);
}

/// Where the dynamic linker looks, then where CUDA's own packages put it.
void* open_library() {
  constexpr int kMode = RTLD_NOW | RTLD_LOCAL;  // loaded until the process ends
  std::vector<std::string> folders{"/usr/local/cuda"};
  for (const char* name : {"CUDA_PATH", "CUDA_HOME"})
    if (const char* folder = std::getenv(name)) folders.insert(folders.begin(), folder);
  void* library = ::dlopen(kFile.c_str(), kMode);
  if (library != nullptr) return library;
  const char* told = ::dlerror();
  const std::string first = told != nullptr ? told : "no reason was given";
  for (const std::string& folder : folders)
    for (const char* sub : {"/lib64/", "/lib/", "/targets/x86_64-linux/lib/"})
      if ((library = ::dlopen((folder + sub + kFile).c_str(), kMode)) != nullptr) return library;
  refuse(first);
}

CublasLibrary load() {
  void* library = open_library();
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
