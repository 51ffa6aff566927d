#include "traces/format/validate.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/base/error.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

/// Names places in the file as "run.h5:/tokens/id[17]".
class Place {
 public:
  explicit Place(const std::string& where) : where_(where) {}
  [[noreturn]] void fail(const char* path, std::string_view what) const {
    input_error(what, where_ + ":" + path);
  }
  [[noreturn]] void fail(const char* path, std::uint64_t index, std::string_view what) const {
    input_error(what, where_ + ":" + path + "[" + std::to_string(index) + "]");
  }
  void require(bool holds, const char* path, std::string_view what) const {
    if (!holds) fail(path, what);
  }
  void require(bool holds, const char* path, std::uint64_t index, std::string_view what) const {
    if (!holds) fail(path, index, what);
  }
  void length(std::uint64_t found, std::uint64_t expected, const char* path) const {
    if (found != expected)
      fail(path, "has " + std::to_string(found) + " entries, not " + std::to_string(expected));
  }

 private:
  const std::string& where_;
};

void check_range(std::uint64_t value, std::uint64_t max, const char* name, const Place& place) {
  if (value == 0 || value > max)
    place.fail("/model", std::string(name) + " is " + std::to_string(value) + ", not within 1 to " +
                             std::to_string(max));
}

void check_segments(const Header& header, const Place& place) {
  place.require(!header.segments.empty() && header.segments.size() <= schema::kMaxSegments, "/segments",
                "needs 1 to 1048576 segments");
  std::uint64_t next = 0;
  for (std::size_t s = 0; s < header.segments.size(); ++s) {
    const Segment& segment = header.segments[s];
    place.require(segment.parent >= -1 && segment.parent < static_cast<std::int64_t>(s), "/segments/parent",
                  s, "parent must come before its child");
    place.require(segment.begin == next && segment.count > 0, "/segments/begin", s,
                  "segments must follow each other without gaps and hold a token");
    next += segment.count;
    std::uint64_t path = 0;
    if (segment.parent >= 0) {
      const Segment& parent = header.segments[static_cast<std::size_t>(segment.parent)];
      path = std::uint64_t{parent.path_len} + parent.count;
    }
    place.require(segment.path_len == path, "/segments/path_len", s,
                  "is not the number of tokens in all ancestors");
    place.require(segment.phase <= Phase::teacher_forced, "/segments/phase", s, "unknown phase");
    place.require(segment.role <= 5, "/segments/role", s, "unknown role");
  }
  place.require(next == header.n_tokens(), "/segments/count", "segments do not cover the tokens");
  place.require(header.sequence_leaf.size() <= schema::kMaxSegments, "/sequences/leaf", "too many sequences");
  for (std::size_t i = 0; i < header.sequence_leaf.size(); ++i)
    place.require(header.sequence_leaf[i] < header.segments.size(), "/sequences/leaf", i, "names no segment");
}

void check_tokens(const Header& header, const Place& place) {
  const std::uint64_t n = header.n_tokens();
  place.length(header.token_segment.size(), n, "/tokens/segment");
  place.length(header.token_position.size(), n, "/tokens/position");
  place.length(header.token_flags.size(), n, "/tokens/flags");
  if (!header.token_logprob.empty()) place.length(header.token_logprob.size(), n, "/tokens/logprob");
  for (std::size_t s = 0; s < header.segments.size(); ++s) {
    const Segment& segment = header.segments[s];
    std::int32_t last = -1;
    if (segment.parent >= 0) {
      const Segment& parent = header.segments[static_cast<std::size_t>(segment.parent)];
      last = header.token_position[parent.begin + parent.count - 1];
    }
    for (std::uint64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      place.require(header.token_segment[t] == s, "/tokens/segment", t,
                    "is not the segment that holds the token");
      place.require(header.token_position[t] > last, "/tokens/position", t, "does not ascend along its path");
      last = header.token_position[t];
    }
  }
  place.require(header.flags_known < (1U << 16), "/tokens", "flags_known sets a reserved bit");
  for (std::uint64_t t = 0; t < n; ++t) {
    const std::int32_t id = header.token_id[t];
    place.require(id >= -1 && id < static_cast<std::int64_t>(header.model.vocab_size), "/tokens/id", t,
                  "is outside the vocabulary");
    place.require(header.token_flags[t] < (1U << 16), "/tokens/flags", t, "sets a reserved bit");
    // NaN means that the token was given, not chosen, so it passes.
    place.require(header.token_logprob.empty() || !(header.token_logprob[t] > 1e-3F), "/tokens/logprob", t,
                  "is the logarithm of more than 1");
  }
}

void check_passes(const Header& header, const Place& place) {
  std::uint64_t next = 0;
  for (std::size_t p = 0; p < header.passes.size(); ++p) {
    const Pass& pass = header.passes[p];
    place.require(pass.segment < header.segments.size(), "/passes/segment", p, "names no segment");
    const Segment& segment = header.segments[pass.segment];
    const std::uint64_t end = segment.begin + segment.count;
    place.require(pass.begin >= std::max(segment.begin, next) && pass.begin < end && pass.q_len > 0 &&
                      pass.q_len <= end - pass.begin,
                  "/passes/begin", p, "pass leaves its segment or overlaps the one before");
    place.require(pass.past_len == segment.path_len + (pass.begin - segment.begin), "/passes/past_len", p,
                  "is not the number of tokens before the pass");
    place.require(pass.phase <= Phase::teacher_forced, "/passes/phase", p, "unknown phase");
    place.require(pass.start_ns >= 0 && pass.dur_ns >= 0, "/passes/dur_ns", p, "negative time");
    next = pass.begin + pass.q_len;
  }
}

void check_timing(const std::vector<float>& times, const Header& header, const char* path,
                  const Place& place) {
  if (times.empty()) return;
  place.length(times.size(), std::uint64_t{header.passes.size()} * header.model.n_layers, path);
  for (std::size_t i = 0; i < times.size(); ++i)
    place.require(std::isfinite(times[i]) && times[i] >= 0, path, i, "is not a time");
}

void check_text(const Header& header, const Place& place) {
  if (header.text_offset.empty()) return place.length(header.text_bytes.size(), 0, "/text/bytes");
  place.length(header.text_offset.size(), header.n_tokens() + 1, "/text/offset");
  place.require(header.text_offset.front() == 0 && header.text_offset.back() == header.text_bytes.size(),
                "/text/offset", "does not span the text");
  for (std::size_t i = 1; i < header.text_offset.size(); ++i)
    place.require(header.text_offset[i - 1] <= header.text_offset[i], "/text/offset", i, "falls");
}

void check_rows(const std::vector<std::uint64_t>& rows, std::uint64_t n_tokens, const char* path,
                const Place& place) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    place.require(rows[i] < n_tokens && (i == 0 || rows[i - 1] < rows[i]), path, i,
                  "is not a later token of the trace");
}

/// Checks that the counted tokens are the first tokens of the file and the whole prompt of the first
/// sequence, segment after segment.
void check_counted(const Header& header, const Place& place) {
  if (header.counted_tokens == 0) return;
  std::uint64_t counted = 0;
  for (std::size_t s = 0; s < header.segments.size() && counted < header.counted_tokens; ++s) {
    const Segment& segment = header.segments[s];
    place.require(segment.phase == Phase::prompt && segment.parent == static_cast<std::int64_t>(s) - 1,
                  "/layers/0000/column/sum", "counts tokens that are not of one prompt");
    counted += segment.count;
  }
  place.require(counted == header.counted_tokens, "/layers/0000/column/sum",
                "counts " + std::to_string(header.counted_tokens) + " tokens, not whole segments");
}

/// Checks that names of prompts are printable, because messages and results contain them verbatim.
void check_workload(const Capture& capture, const Place& place) {
  for (const std::string* name : {&capture.workload, &capture.workload_item}) {
    const bool printable =
        std::all_of(name->begin(), name->end(), [](char c) { return c > ' ' && c < 0x7f; });
    place.require(printable, "/capture",
                  "workload and workload_item are printable ASCII characters without spaces");
  }
}

void check_rotations(const Model& model, const Place& place) {
  const bool several = !model.layer_rotation.empty();
  const std::size_t count = several ? model.rotation_factor.size() : 1;
  place.length(model.inv_freq.size(), count * (model.rotary_dim / 2), "/model/inv_freq");
  place.length(model.layer_rotation.size(), several ? model.n_layers : 0, "/model/layer_rotation");
  for (std::size_t i = 0; i < model.layer_rotation.size(); ++i)
    place.require(model.layer_rotation[i] < count, "/model/layer_rotation", i, "is not below n_rotations");
  for (std::size_t i = 0; i < model.rotation_factor.size(); ++i)
    place.require(std::isfinite(model.rotation_factor[i]) && model.rotation_factor[i] > 0,
                  "/model/rotation_factor", i, "is not positive");
  for (std::uint32_t layer = 0; layer < model.layer_rotation.size(); ++layer)
    place.require(rotates(model, layer) || model.rotary(layer).attention_factor == 1,
                  "/model/rotation_factor", model.layer_rotation[layer],
                  "is not 1, and the rotation is none");
}

}  // namespace

bool rotates(const Model& model, std::uint32_t layer) {
  return std::ranges::any_of(model.rotary(layer).inv_freq, [](float frequency) { return frequency != 0; });
}

void check_model(const Model& model, const std::string& where) {
  const Place place(where);
  check_range(model.n_layers, schema::kMaxLayers, "n_layers", place);
  check_range(model.n_q_heads, schema::kMaxHeads, "n_q_heads", place);
  check_range(model.n_kv_heads, schema::kMaxHeads, "n_kv_heads", place);
  check_range(model.head_dim, schema::kMaxDim, "head_dim", place);
  check_range(model.v_head_dim, schema::kMaxDim, "v_head_dim", place);
  check_range(model.vocab_size, 1ULL << 31, "vocab_size", place);
  place.require(model.n_q_heads % model.n_kv_heads == 0, "/model",
                "n_q_heads " + std::to_string(model.n_q_heads) + " is not a multiple of n_kv_heads " +
                    std::to_string(model.n_kv_heads));
  place.require(model.rotary_dim <= model.head_dim && model.rotary_dim % 2 == 0, "/model",
                "rotary_dim is odd or larger than head_dim");
  place.require(model.values_in_keys || model.first_rotated == 0, "/model",
                "first_rotated is not 0, though values are stored");
  place.require(model.first_rotated <= model.head_dim - model.rotary_dim, "/model",
                "first_rotated and rotary_dim reach beyond head_dim");
  place.require(!model.values_in_keys || model.v_head_dim <= model.head_dim, "/model",
                "values are the beginning of keys, and longer");
  place.require(std::isfinite(model.attn_scale) && model.attn_scale > 0, "/model",
                "attn_scale is not positive");
  place.require(std::isfinite(model.norm_eps) && model.norm_eps >= 0, "/model", "norm_eps is negative");
  place.require(std::isfinite(model.rope_theta) && model.rope_theta >= 0, "/model", "rope_theta is negative");
  place.require(std::isfinite(model.rope_attention_factor) && model.rope_attention_factor > 0, "/model",
                "rope_attention_factor is not positive");
  place.require(std::isfinite(model.logit_softcap) && model.logit_softcap >= 0, "/model",
                "logit_softcap is negative");
  place.require(model.rope_layout == "half_split" || model.rope_layout == "interleaved", "/model",
                "rope_layout is neither half_split nor interleaved");
  place.require(model.config_json.size() <= schema::kMaxConfigBytes, "/model/config_json",
                "is larger than 1 MiB");
  place.length(model.layer_window.size(), model.n_layers, "/model/layer_window");
  for (std::size_t i = 0; i < model.layer_window.size(); ++i)
    place.require(model.layer_window[i] == -1 || model.layer_window[i] > 0, "/model/layer_window", i,
                  "is neither -1 nor a window");
  check_rotations(model, place);
  place.length(model.sinks.size(), model.sinks.empty() ? 0 : std::size_t{model.n_layers} * model.n_q_heads,
               "/model/sinks");
  for (std::size_t i = 0; i < model.sinks.size(); ++i)
    place.require(std::isfinite(model.sinks[i]), "/model/sinks", i, "is not finite");
  for (std::size_t i = 0; i < model.inv_freq.size(); ++i)
    place.require(std::isfinite(model.inv_freq[i]) && model.inv_freq[i] >= 0, "/model/inv_freq", i,
                  "is not a frequency");
}

void check_header(const Header& header, const std::string& where) {
  check_model(header.model, where);
  const Place place(where);
  if (header.output_elem) check_range(header.model.hidden_size, schema::kMaxHidden, "hidden_size", place);
  place.require(header.n_tokens() > 0 && header.n_tokens() <= schema::kMaxTokens, "/tokens",
                "needs 1 to 16777216 tokens");
  check_segments(header, place);
  check_tokens(header, place);
  check_passes(header, place);
  check_workload(header.capture, place);
  check_timing(header.layer_ns, header, "/timing/layer_ns", place);
  check_timing(header.attn_ns, header, "/timing/attn_ns", place);
  check_text(header, place);
  check_counted(header, place);
  check_rows(header.query_token, header.n_tokens(), "/layers/0000/q_token", place);
  check_rows(header.attention_token, header.n_tokens(), "/layers/0000/rows/token", place);
}

}  // namespace kvsim::trace
