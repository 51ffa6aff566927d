#pragma once
/// The header of a trace: everything it stores besides tensors. The fields are those of the tables in
/// traces/format/SCHEMA.md.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::trace {

/// Shape and arithmetic of the recorded model.
struct Model {
  std::string name, revision, model_type, architecture;
  std::uint32_t n_layers = 0, n_q_heads = 0, n_kv_heads = 0;
  std::uint32_t head_dim = 0;    ///< of queries and keys
  std::uint32_t v_head_dim = 0;  ///< of values
  /// Values are the first v_head_dim components of keys, and are not stored (latent attention).
  bool values_in_keys = false;
  std::uint32_t rotary_dim = 0;     ///< components that RoPE rotates
  std::uint32_t first_rotated = 0;  ///< the first of them
  std::uint32_t hidden_size = 0, vocab_size = 0;
  double attn_scale = 0;  ///< factor on q.k before the softmax, usually 1/sqrt(head_dim)
  double norm_eps = 0, rope_theta = 0;
  double rope_attention_factor = 1;  ///< already applied to stored q and k
  double logit_softcap = 0;          ///< 0: none
  std::string rope_type = "default";
  std::string rope_layout = "half_split";  ///< half_split | interleaved
  bool qk_norm = false, qkv_bias = false, tied_embeddings = false;
  std::string weights_sha256;
  std::vector<std::int32_t>
      layer_window;  ///< [n_layers]; -1: full attention, else key j is seen by t iff t-W < j <= t
  /// Windows are chunks of the path: key j is seen by t iff j <= t and j / W = t / W, in whole numbers (Llama
  /// 4).
  bool chunked = false;
  std::vector<float> inv_freq;  ///< [rotary_dim/2], after scaling; of each rotation, where there are several
  std::vector<std::uint32_t> layer_rotation;  ///< [n_layers], of several rotations; empty: there is one
  std::vector<double> rotation_factor;        ///< rope_attention_factor of each of several; else empty
  /// [n_layers * n_q_heads]: the logit of each query head's sink, which takes part in the softmax of every
  /// row and gives nothing; empty: there are none.
  std::vector<float> sinks;
  std::string config_json;  ///< verbatim, may be empty

  std::uint32_t group() const { return n_q_heads / n_kv_heads; }
  /// Whether some layer has a sliding window.
  bool has_windows() const {
    return std::ranges::any_of(layer_window, [](std::int32_t window) { return window >= 0; });
  }
  /// Numbers that a KV head caches of a token.
  std::uint32_t token_numbers() const { return head_dim + (values_in_keys ? 0 : v_head_dim); }
  /// The logit of a query head's sink; -infinity, which takes nothing: none.
  float sink(std::uint32_t layer, std::size_t query_head) const {
    return sinks.empty() ? -std::numeric_limits<float>::infinity()
                         : sinks[std::size_t{layer} * n_q_heads + query_head];
  }
  /// The first key of its path that the query at `position` sees.
  std::size_t first_seen(std::uint32_t layer, std::size_t position) const {
    if (layer_window[layer] < 0) return 0;
    const auto window = static_cast<std::size_t>(layer_window[layer]);
    if (chunked) return position - position % window;
    return position + 1 - std::min(position + 1, window);
  }
  /// The end of the queries of a path that see the key at `position`, of the first `n`.
  std::size_t seen_until(std::uint32_t layer, std::size_t position, std::size_t n) const {
    if (layer_window[layer] < 0) return n;
    const auto window = static_cast<std::size_t>(layer_window[layer]);
    return std::min(n, chunked ? (position / window + 1) * window : position + window);
  }
  /// Which rotation a layer has, of several.
  std::size_t rotation_of(std::uint32_t layer) const {
    return layer_rotation.empty() ? 0 : layer_rotation[layer];
  }
  /// The rotation of a layer's stored queries and keys by their token's position; refers to inv_freq.
  Rotary rotary(std::uint32_t layer) const {
    const std::size_t number = rotation_of(layer), pairs = rotary_dim / 2;
    return {std::span(inv_freq).subspan(number * pairs, pairs),
            rope_layout == "interleaved" ? RotaryLayout::interleaved : RotaryLayout::half_split,
            rotation_factor.empty() ? rope_attention_factor : rotation_factor[number], first_rotated};
  }
};

/// Provenance: what recorded the trace, and how.
struct Capture {
  std::string source;  ///< native-cpu, native-cuda, transformers, synthetic, converted:...
  std::string device_name, device_kind, cpu_model, compute_dtype, accum_dtype, math_mode, attention_kernel,
      software;
  std::string sampling = "greedy";
  std::string q_policy;              ///< all | window:W | sample:K | window:W,sample:K
  std::string row_policy;            ///< none | window:W | full
  std::string verified;              ///< gate and largest error, or empty
  std::string workload;              ///< kind of prompt, such as needle-multi-key; empty if not known
  std::string workload_item;         ///< id of the prompt in its workload, or empty
  std::string driver, cuda_version;  ///< of the device; empty without a device
  /// Of a tensor-parallel run, whose heads are divided: "1 of 4", from 0, or where several ranks have the
  /// same KV head "1 of 4, each KV head on 2".
  std::string rank;
  std::uint32_t threads = 0, prefill_chunk = 0;
  std::uint64_t seed = 0;
  bool rope_fp32 = true, teacher_forced = false;
};

enum class Phase : std::uint8_t { prompt = 0, decode = 1, teacher_forced = 2 };
/// "prompt", "decode" or "teacher-forced".
constexpr const char* phase_name(Phase phase) {
  return phase == Phase::prompt ? "prompt" : phase == Phase::decode ? "decode" : "teacher-forced";
}

/// A contiguous span of computed tokens. Each of its tokens attends to all tokens of its ancestors and to the
/// segment's own tokens up to itself.
struct Segment {
  std::int32_t parent = -1;  ///< index, -1: root; always smaller than the segment's own
  std::uint64_t begin = 0;   ///< first token (file order)
  std::uint32_t count = 0;
  std::uint32_t path_len = 0;  ///< tokens in all ancestors
  Phase phase = Phase::prompt;
  std::uint16_t turn = 0;
  std::uint8_t role = 0;  ///< 0 none 1 system 2 user 3 assistant 4 tool 5 document
};

/// One forward call.
struct Pass {
  std::uint32_t segment = 0;
  std::uint64_t begin = 0;  ///< first token (file order)
  std::uint32_t q_len = 0, past_len = 0;
  Phase phase = Phase::prompt;
  std::int64_t start_ns = 0, dur_ns = 0;  ///< monotonic, origin = start of capture
};

/// Bits of token flags (SCHEMA.md lists all).
enum TokenFlag : std::uint32_t {
  kFlagSpecial = 1U << 0,
  kFlagGenerated = 1U << 2,
  kFlagQuestion = 1U << 3,
  kFlagContext = 1U << 4,
  kFlagEvidence = 1U << 5,
  kFlagWhiteSpace = 1U << 8,
  kFlagPunctuation = 1U << 9,
  kFlagDigit = 1U << 10,
};

struct Header {
  std::string file_uuid, created_utc, writer;
  Model model;
  Capture capture;
  std::string tokenizer_name, tokenizer_sha256;
  Elem elem = Elem::f32;            ///< of q, k and v
  std::optional<Elem> output_elem;  ///< of the output weights; none if they are not stored

  // Tokens, all [n_tokens], in file order.
  std::vector<std::int32_t> token_id;  ///< -1: withheld
  std::vector<std::uint32_t> token_segment;
  std::vector<std::int32_t> token_position;  ///< RoPE position
  std::vector<std::uint32_t> token_flags;
  std::uint32_t flags_known = 0;     ///< the bits of token_flags that are meaningful
  std::vector<float> token_logprob;  ///< NaN where it is not known; empty if not stored
  std::vector<Segment> segments;
  std::vector<std::uint32_t> sequence_leaf;  ///< leaf segment of each sequence worth replaying
  std::vector<Pass> passes;
  std::vector<float> layer_ns;  ///< [passes][layers], empty if not stored
  std::vector<float> attn_ns;   ///< [passes][layers], empty if not stored

  std::vector<std::uint64_t> text_offset;  ///< [n_tokens+1] into text_bytes, empty if not stored
  std::string text_bytes;

  /// Token index of each stored query row, ascending; empty means every token has one.
  std::vector<std::uint64_t> query_token;
  /// Token index of each stored attention row, ascending; empty means none is stored.
  std::vector<std::uint64_t> attention_token;

  /// The column statistics sum the attention of the first `counted_tokens` tokens, which are the whole prompt
  /// of the first sequence; 0 if no column statistics are stored.
  std::uint64_t counted_tokens = 0;

  std::uint64_t n_tokens() const { return token_id.size(); }
  std::uint64_t n_query_rows() const { return query_token.empty() ? n_tokens() : query_token.size(); }
  /// End of the keys that the token's attention row may span: its position along its path, plus one for
  /// itself.
  std::uint64_t visible_end(std::uint64_t token) const {
    const Segment& segment = segments[token_segment[token]];
    return segment.path_len + (token - segment.begin) + 1;
  }
};

}  // namespace kvsim::trace
