#pragma once
/// A checkpoint's tensors on the device, in the type of the computation: float or Bf16.
#include <cstdint>
#include <vector>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_kernels.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cuda {

template <class T>
inline constexpr Elem kElemOf = Elem::f32;
template <>
inline constexpr Elem kElemOf<Bf16> = Elem::bf16;

/// y = x W^T + b with W row-major [out, in].
template <class T>
struct DeviceLinear {
  DeviceArray<T> weight;
  DeviceArray<float> bias;  ///< [out] or empty
  std::uint64_t out = 0, in = 0;
};

template <class T>
struct DeviceLayer {
  DeviceArray<float> attention_norm, mlp_norm;  ///< [hidden]
  DeviceArray<float> q_norm, k_norm;            ///< [head_dim] or empty
  DeviceLinear<T> q, k, v, o, gate, up, down;
};

template <class T>
struct DeviceWeights {
  DeviceLinear<T> embedding;  ///< [vocab, hidden]
  DeviceLinear<T> head;       ///< [vocab, hidden]; empty when tied
  DeviceArray<float> norm;
  std::vector<DeviceLayer<T>> layers;

  const DeviceLinear<T>& output() const { return head.weight.size() > 0 ? head : embedding; }
};

/// Bytes that upload_weights() will allocate.
template <class T>
std::uint64_t device_bytes(const Weights& weights);

/// Copies every tensor to the device. It reads each mapped tensor once, through two pinned buffers, so that
/// one piece is converted while the device copies the piece before. Throws Error(usage) when the device has
/// too little memory.
template <class T>
DeviceWeights<T> upload_weights(const Weights& weights, const Stream& stream);

}  // namespace kvsim::model::cuda
