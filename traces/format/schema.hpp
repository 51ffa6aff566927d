#pragma once
/// Constants of the trace schema that writer and reader share. SCHEMA.md explains them.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#include "sim/base/half.hpp"
#include "traces/format/header.hpp"
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

namespace kvsim::trace {

// The fields of a header as a file names them, in the order of the file: what the writer puts and the reader
// takes.

/// Calls field(name, member) for every attribute of /model. `M`: Model or const Model.
template <class M, class Field>
void model_attributes(M& model, Field field) {
  field("name", model.name);
  field("revision", model.revision);
  field("model_type", model.model_type);
  field("architecture", model.architecture);
  field("n_layers", model.n_layers);
  field("n_q_heads", model.n_q_heads);
  field("n_kv_heads", model.n_kv_heads);
  field("head_dim", model.head_dim);
  field("v_head_dim", model.v_head_dim);
  field("rotary_dim", model.rotary_dim);
  field("hidden_size", model.hidden_size);
  field("vocab_size", model.vocab_size);
  field("attn_scale", model.attn_scale);
  field("norm_eps", model.norm_eps);
  field("rope_theta", model.rope_theta);
  field("rope_attention_factor", model.rope_attention_factor);
  field("logit_softcap", model.logit_softcap);
  field("rope_type", model.rope_type);
  field("rope_layout", model.rope_layout);
  field("qk_norm", model.qk_norm);
  field("qkv_bias", model.qkv_bias);
  field("tied_embeddings", model.tied_embeddings);
  field("weights_sha256", model.weights_sha256);
}

/// The same for /capture. optional(name, member): an attribute that is there only where the text is not
/// empty.
template <class C, class Field, class Optional>
void capture_attributes(C& capture, Field field, Optional optional) {
  static const std::string kAllLayers = "all";
  field("source", capture.source);
  field("device_name", capture.device_name);
  field("device_kind", capture.device_kind);
  field("cpu_model", capture.cpu_model);
  field("compute_dtype", capture.compute_dtype);
  field("accum_dtype", capture.accum_dtype);
  field("math_mode", capture.math_mode);
  field("attention_kernel", capture.attention_kernel);
  field("software", capture.software);
  field("sampling", capture.sampling);
  field("q_policy", capture.q_policy);
  field("row_policy", capture.row_policy);
  field("layers_kept", kAllLayers);
  field("verified", capture.verified);
  optional("workload", capture.workload);
  optional("workload_item", capture.workload_item);
  optional("driver", capture.driver);
  optional("cuda_version", capture.cuda_version);
  optional("rank", capture.rank);
  field("threads", capture.threads);
  field("prefill_chunk", capture.prefill_chunk);
  field("seed", capture.seed);
  field("rope_fp32", capture.rope_fp32);
  field("teacher_forced", capture.teacher_forced);
}

/// Calls column(name, member pointer) for every list of /segments that has a number of each.
template <class Column>
void segment_columns(Column column) {
  column("parent", &Segment::parent);
  column("begin", &Segment::begin);
  column("count", &Segment::count);
  column("path_len", &Segment::path_len);
  column("phase", &Segment::phase);
  column("turn", &Segment::turn);
  column("role", &Segment::role);
}

/// The same for /passes.
template <class Column>
void pass_columns(Column column) {
  column("segment", &Pass::segment);
  column("begin", &Pass::begin);
  column("q_len", &Pass::q_len);
  column("past_len", &Pass::past_len);
  column("phase", &Pass::phase);
  column("start_ns", &Pass::start_ns);
  column("dur_ns", &Pass::dur_ns);
}

/// How a file stores a number: enumerations as bytes.
template <class Value>
using StoredNumber = std::conditional_t<std::is_enum_v<Value>, std::uint8_t, Value>;

}  // namespace kvsim::trace
