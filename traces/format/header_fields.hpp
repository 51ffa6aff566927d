#pragma once
/// The fields of a header as a file names them, in the order of the file: what the writer puts and the reader
/// takes.
#include <cstdint>
#include <string>
#include <type_traits>

#include "traces/format/header.hpp"

namespace kvsim::trace {

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
