#pragma once
/// The functions of cuBLAS that kvsim uses, loaded at the first CUDA run: the library is several hundred
/// megabytes, which a process that only replays or plots should not load.
#include <cublas_v2.h>

#include <cstddef>

namespace kvsim::model::cuda {

struct CublasLibrary {
  cublasStatus_t (*create)(cublasHandle_t*);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*get_version)(cublasHandle_t, int*);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*set_workspace)(cublasHandle_t, void*, std::size_t);
  cublasStatus_t (*set_math_mode)(cublasHandle_t, cublasMath_t);
  cublasStatus_t (*gemm_strided_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                         int k, const void* alpha, const void* a, cudaDataType a_type,
                                         int lda, long long a_stride, const void* b, cudaDataType b_type,
                                         int ldb, long long b_stride, const void* beta, void* c,
                                         cudaDataType c_type, int ldc, long long c_stride, int batch,
                                         cublasComputeType_t, cublasGemmAlgo_t);
};

/// Throws Error(usage) naming the file that is missing or lacks a function.
const CublasLibrary& cublas_library();

}  // namespace kvsim::model::cuda
