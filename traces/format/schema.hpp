#pragma once
/// Constants of the trace schema that writer and reader share. SCHEMA.md explains them.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

#include "sim/base/half.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace::schema {

inline constexpr const char* kFormat = "kvtrace";
inline constexpr std::uint16_t kMajor = 1, kMinor = 4;
/// Of files that say something which a reader may not ignore (Needed).
inline constexpr std::uint16_t kMajorOfNeeded = 2;

// What a reader accepts at most.
inline constexpr std::uint64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxDim = 1024;
inline constexpr std::uint64_t kMaxHidden = 1ULL << 16;  ///< hidden_size, where output weights are stored
inline constexpr std::uint64_t kMaxTokens = 1ULL << 24, kMaxSegments = 1ULL << 20;
inline constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;

/// Of a layer: the digests of its tensors' blocks.
inline constexpr const char* kDigestGroup = "xxh3";

/// Bits of the root attribute `features`.
enum Feature : std::uint64_t {
  kAllQueries = 1U << 0,
  kWindowQueries = 1U << 1,
  kAttentionRows = 1U << 2,
  kBlockDigests = 1U << 3,
  kTiming = 1U << 4,
  kColumnStatistics = 1U << 5,
  kText = 1U << 6,
  kOutputWeights = 1U << 7,
};

/// Bits of the root attribute `needs`: what a reader has to know, or it would be silently wrong.
enum Needed : std::uint64_t {
  kLayerRotations = 1U << 0,
  kSinks = 1U << 1,
  kValuesInKeys = 1U << 2,
  kChunks = 1U << 3,
};
inline constexpr std::uint64_t kKnownNeeds = kLayerRotations | kSinks | kValuesInKeys | kChunks;

inline std::uint64_t needs_of(const Model& model) {
  return (model.layer_rotation.empty() ? 0 : std::uint64_t{kLayerRotations}) |
         (model.sinks.empty() ? 0 : std::uint64_t{kSinks}) |
         (model.values_in_keys ? std::uint64_t{kValuesInKeys} : 0) |
         (model.chunked ? std::uint64_t{kChunks} : 0);
}

inline std::string layer_group(std::uint32_t layer) {
  char name[16];
  std::snprintf(name, sizeof name, "%04u", layer);
  return name;
}

constexpr const char* tensor_name(Tensor tensor) {
  return tensor == Tensor::query ? "q" : tensor == Tensor::key ? "k" : "v";
}

inline std::uint32_t tensor_heads(const Model& model, Tensor tensor) {
  return tensor == Tensor::query ? model.n_q_heads : model.n_kv_heads;
}
inline std::uint32_t tensor_dim(const Model& model, Tensor tensor) {
  return tensor == Tensor::value ? model.v_head_dim : model.head_dim;
}
inline std::uint64_t tensor_rows(const Header& header, Tensor tensor) {
  return tensor == Tensor::query ? header.n_query_rows() : header.n_tokens();
}

/// Rows per chunk: about 128 KiB of one head, a power of two.
constexpr std::uint64_t chunk_rows(std::uint64_t dim, Elem elem) {
  return std::clamp<std::uint64_t>(std::bit_floor(131072 / (dim * elem_bytes(elem))), 64, 4096);
}
inline constexpr std::uint64_t kAttentionChunk = 65536;

}  // namespace kvsim::trace::schema
