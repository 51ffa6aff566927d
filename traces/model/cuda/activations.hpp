#pragma once
/// The activations on the device between the steps of a pass. T, the type of the computation, is float or
/// Bf16.
#include <algorithm>
#include <array>
#include <cstdint>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_kernels.hpp"
#include "traces/model/model_config.hpp"

namespace kvsim::model::cuda {

inline constexpr std::uint64_t kLogitRows = 16;  // rows of logits computed at a time

/// Elements of one token's queries, and of its keys.
inline std::uint64_t query_width(const ModelConfig& config) {
  return std::uint64_t{config.n_heads} * config.head_dim;
}
inline std::uint64_t kv_width(const ModelConfig& config) {
  return std::uint64_t{config.n_kv_heads} * config.head_dim;
}

/// Activations of one pass of at most `tokens`, uninitialised. The residual stream is `hidden`; the others
/// are scratch.
template <class T>
struct Activations {
  Activations(const ModelConfig& config, std::uint64_t tokens)
      : ids(tokens, kWhat),
        cosine(tokens * config.head_dim / 2, kWhat),
        sine(tokens * config.head_dim / 2, kWhat),
        hidden(tokens * config.hidden_size, kWhat),
        normed(tokens * config.hidden_size, kWhat),
        projected(tokens * widest(config), kWhat),
        attended(tokens * query_width(config), kWhat),
        gate(tokens * config.intermediate_size, kWhat),
        up(tokens * config.intermediate_size, kWhat),
        logits(std::min(kLogitRows, tokens) * config.vocab_size, kWhat),
        chosen(1, kWhat) {
    for (DeviceArray<T>& q : queries) q = DeviceArray<T>(tokens * query_width(config), kWhat);
  }

  static std::uint64_t widest(const ModelConfig& config) {
    return std::max({query_width(config), kv_width(config), std::uint64_t{config.hidden_size}});
  }
  static std::uint64_t bytes(const ModelConfig& config, std::uint64_t tokens) {
    const std::uint64_t of_token = 2 * std::uint64_t{config.hidden_size} + widest(config) +
                                   3 * query_width(config) + 2 * std::uint64_t{config.intermediate_size};
    return tokens * (of_token * sizeof(T) + (1 + config.head_dim) * sizeof(float)) +
           std::min(kLogitRows, tokens) * config.vocab_size * sizeof(float) + sizeof(Greedy);
  }

  static constexpr const char* kWhat = "the workspace of a pass";
  DeviceArray<std::int32_t> ids;
  DeviceArray<float> cosine, sine;
  DeviceArray<T> hidden, normed, projected, attended, gate, up;
  std::array<DeviceArray<T>, 2> queries;  // of this layer, and of the previous layer while its queries are
                                          // copied out
  DeviceArray<float> logits;
  DeviceArray<Greedy> chosen;
};

}  // namespace kvsim::model::cuda
