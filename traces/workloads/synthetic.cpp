#include "traces/workloads/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/version.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

// A vector's components, in order:
//   0      sink          query: constant; key: on sink tokens only
//   1      heavy hitter  query: constant; key: on heavy tokens of the layer only
//   2-3    topic         query and key: a direction that rotates from token to token
//   4...   locality      pairs rotated by position like RoPE; their dot product falls with distance
//   rest   noise         independent draws; a direction of its own in a needle's keys and in queries that ask
//   for it
// Every component has the square root of its part of the logit, in query and key.
constexpr std::uint32_t kSink = 0, kHeavy = 1, kTopic = 2, kLocality = 4;
constexpr double kTopicLogit = 2.0;  ///< logit gained by a key that has the query's topic
constexpr float kSinkValue = 0.1F;   ///< sinks have small values, as in trained models
constexpr std::uint32_t kVocabulary = 1000;

/// sin(2 pi x) from IEEE operations alone, so that the bytes of a trace do not depend on the libm. |error| <
/// 1e-9.
double sin_turn(double x) {
  x -= std::floor(x + 0.5);  // [-1/2, 1/2]
  if (x > 0.25) x = 0.5 - x;
  if (x < -0.25) x = -0.5 - x;
  const double y = x * 6.283185307179586, z = y * y;  // Taylor on [-pi/2, pi/2]
  double sum = 1.0;
  for (int n = 17; n >= 3; n -= 2) sum = 1.0 - sum * z / (n * (n - 1));
  return y * sum;
}
double cos_turn(double x) {
  return sin_turn(x + 0.25);
}

/// Noise of standard deviation 1, nearly normal: the sum of four 16-bit uniforms of one draw.
float noise_of(std::uint64_t key) {
  const std::uint64_t bits = mix(key);
  const auto sum =
      static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  return static_cast<float>((sum - 131070.0) * (1.7320508075688772 / 65536.0));
}

struct Shape {
  std::uint32_t planes, noise_begin, dim;
  double scale;  ///< of q.k
};

Shape shape_of(const SyntheticOptions& options) {
  const std::uint32_t planes = (options.head_dim - kLocality) / 4;
  return {planes, kLocality + 2 * planes, options.head_dim,
          1.0 / std::sqrt(static_cast<double>(options.head_dim))};
}

void check_options(const SyntheticOptions& options) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) usage_error(what, "synthetic trace");
  };
  require(options.layers >= 1 && options.layers <= schema::kMaxLayers, "layers must be 1 to 1024");
  require(options.kv_heads >= 1 && options.group >= 1 &&
              std::uint64_t{options.kv_heads} * options.group <= schema::kMaxHeads,
          "KV heads and group must be at least 1, and their product at most 1024");
  require(options.head_dim >= 8 && options.head_dim <= schema::kMaxDim && options.head_dim % 2 == 0,
          "head dimension must be even and 8 to 1024");
  require(options.prompt >= 1 && options.prompt <= schema::kMaxTokens &&
              options.decode <= schema::kMaxTokens && options.prompt + options.decode <= schema::kMaxTokens,
          "prompt must be at least 1 token, prompt and decode at most 16777216");
  for (const double logit : {options.sink, options.locality, options.heavy, options.noise, options.needle})
    require(logit >= 0 && logit <= 1000, "sink, locality, heavy, noise and needle must be 0 to 1000");
  require(options.stretch >= 1 && options.stretch <= 1000, "stretch must be 1 to 1000");
  require(options.needle_tokens >= 1, "a needle must have at least 1 token");
  require(options.needles == 0 ||
              options.sinks + (1 + std::uint64_t{options.needle_tokens}) * options.needles <= options.prompt,
          "the prompt must have room for sinks, needles and a question for each of them");
  require(options.local_span > 0 && options.local_span <= 1e9, "local span must be positive");
  require(options.heavy_share >= 0 && options.heavy_share <= 1, "heavy share must be 0 to 1");
  require(std::isfinite(options.drift) && std::abs(options.drift) <= 1e6, "drift must be at most 1e6");
}

Model model_of(const SyntheticOptions& options) {
  Model model;
  model.name = "synthetic";
  model.model_type = "synthetic";
  model.architecture = "synthetic";
  model.n_layers = options.layers;
  model.n_q_heads = options.kv_heads * options.group;
  model.n_kv_heads = options.kv_heads;
  model.head_dim = options.head_dim;
  model.hidden_size = model.n_q_heads * options.head_dim;
  model.vocab_size = kVocabulary;
  model.rope_type = "none";
  return model;
}

/// The components that queries and keys of all layers and heads share, topic and locality, [tokens, kTopic ..
/// noise_begin). cos(w (i - j)) averaged over frequencies w drawn from a Cauchy distribution of scale 1/span
/// is exp(-|i - j| / span); the planes use the quantiles of that distribution.
std::vector<float> positional_part(const SyntheticOptions& options, const Shape& shape) {
  const std::uint64_t tokens = options.prompt + options.decode;
  const std::uint32_t width = shape.noise_begin - kTopic;
  const double topic = std::sqrt(kTopicLogit / shape.scale);
  const double local = std::sqrt(options.locality / shape.scale / shape.planes);
  std::vector<double> turns(shape.planes);  // per token
  for (std::uint32_t i = 0; i < shape.planes; ++i) {
    const double quarter = 0.25 * (i + 0.5) / shape.planes;
    turns[i] = sin_turn(quarter) / cos_turn(quarter) / options.local_span / 6.283185307179586;
  }
  std::vector<float> out(tokens * width);
  for (std::uint64_t t = 0; t < tokens; ++t) {
    float* at = out.data() + t * width;
    const auto token = static_cast<double>(t);
    const double angle = options.drift * token / 1000.0 / 6.283185307179586;
    *at++ = static_cast<float>(topic * cos_turn(angle));
    *at++ = static_cast<float>(topic * sin_turn(angle));
    for (std::uint32_t i = 0; i < shape.planes; ++i) {
      *at++ = static_cast<float>(local * cos_turn(turns[i] * token));
      *at++ = static_cast<float>(local * sin_turn(turns[i] * token));
    }
  }
  return out;
}

/// Where the needles are and who asks for them.
class Needles {
 public:
  explicit Needles(const SyntheticOptions& options)
      : prompt_(options.prompt), tokens_(options.needle_tokens) {
    const std::uint64_t room =
        options.prompt - std::min<std::uint64_t>(options.prompt, options.sinks) - options.needles;
    const std::uint64_t key = combine({options.seed, key_of("needle")});
    for (std::uint64_t i = 0; i < options.needles; ++i) {
      const std::uint64_t first = room * i / options.needles, end = room * (i + 1) / options.needles;
      begins_.push_back(options.sinks + first + mix(key ^ mix(i)) % (end - first - tokens_ + 1));
    }
  }

  std::uint64_t count() const { return begins_.size(); }
  bool asks(std::uint64_t token) const { return token + count() >= prompt_ && count() > 0; }
  /// The needle that an asking token asks for.
  std::uint64_t asked_by(std::uint64_t token) const { return (token + count() - prompt_) % count(); }
  /// The needle that the token belongs to.
  std::optional<std::uint64_t> of(std::uint64_t token) const {
    const auto behind = std::ranges::upper_bound(begins_, token);
    if (behind == begins_.begin() || token - *(behind - 1) >= tokens_) return std::nullopt;
    return static_cast<std::uint64_t>(behind - begins_.begin()) - 1;
  }
  void mark(Header& header) const {
    if (count() == 0) return;
    header.flags_known |= kFlagQuestion | kFlagContext | kFlagEvidence;
    for (std::uint64_t t = 0; t < prompt_; ++t) {
      header.token_flags[t] |= asks(t) ? kFlagQuestion : kFlagContext;
      if (of(t)) header.token_flags[t] |= kFlagEvidence;
    }
  }

 private:
  std::uint64_t prompt_, tokens_;
  std::vector<std::uint64_t> begins_;  ///< first token of each, ascending
};

class Generator {
 public:
  Generator(const SyntheticOptions& options, const Needles& needles)
      : options_(options),
        needles_(needles),
        shape_(shape_of(options)),
        shared_(positional_part(options, shape_)),
        sink_(static_cast<float>(std::sqrt(options.sink / shape_.scale))),
        heavy_(static_cast<float>(std::sqrt(options.heavy / shape_.scale))),
        noise_(static_cast<float>(
            std::sqrt(options.noise / shape_.scale / std::sqrt(double(shape_.dim - shape_.noise_begin))))),
        needle_(static_cast<float>(
            std::sqrt(options.needle / shape_.scale / double(shape_.dim - shape_.noise_begin)))) {}

  void fill(MemoryTrace& trace) const {
    for (std::uint32_t layer = 0; layer < options_.layers; ++layer) {
      const std::vector<bool> heavy = heavy_tokens(layer);
      for (std::uint32_t head = 0; head < options_.kv_heads; ++head) {
        fill_keys(layer, head, heavy, trace.rows(Tensor::key, layer, head));
        fill_values(layer, head, trace.rows(Tensor::value, layer, head));
      }
      for (std::uint32_t head = 0; head < options_.kv_heads * options_.group; ++head)
        fill_queries(layer, head, trace.rows(Tensor::query, layer, head));
    }
  }

 private:
  std::uint64_t stream(const char* name, std::uint32_t layer, std::uint32_t head) const {
    return combine({options_.seed, key_of(name), layer, head});
  }

  std::vector<bool> heavy_tokens(std::uint32_t layer) const {
    const std::uint64_t key = stream("heavy", layer, 0);
    std::vector<bool> heavy(options_.prompt + options_.decode);
    for (std::size_t t = 0; t < heavy.size(); ++t)
      heavy[t] = t >= options_.sinks && uniform01(key ^ mix(t)) < options_.heavy_share;
    return heavy;
  }

  void fill_shared_and_noise(std::uint64_t key, std::uint64_t t, float* row) const {
    const std::uint32_t width = shape_.noise_begin - kTopic;
    std::copy_n(shared_.data() + t * width, width, row + kTopic);
    const std::uint64_t token_key = mix(key ^ mix(t));
    for (std::uint32_t i = shape_.noise_begin; i < shape_.dim; ++i) row[i] = noise_ * noise_of(token_key + i);
  }

  /// In place of noise: signs of equal size, the same in keys and queries of a KV head.
  void fill_needle(std::uint64_t needle, std::uint32_t layer, std::uint32_t kv_head, float* row) const {
    const std::uint64_t key = mix(stream("needle", layer, kv_head) ^ mix(needle));
    for (std::uint32_t i = shape_.noise_begin; i < shape_.dim; ++i)
      row[i] = (mix(key + i) & 1) != 0 ? needle_ : -needle_;
  }

  void stretch(double even, double odd, float* row) const {
    for (std::uint32_t i = shape_.noise_begin; i < shape_.dim; ++i)
      row[i] *= static_cast<float>(i % 2 == 0 ? even : odd);
  }

  void fill_keys(std::uint32_t layer, std::uint32_t head, const std::vector<bool>& heavy,
                 std::span<float> out) const {
    const std::uint64_t key = stream("key", layer, head);
    for (std::uint64_t t = 0; t < heavy.size(); ++t) {
      float* row = out.data() + t * shape_.dim;
      row[kSink] = t < options_.sinks ? sink_ : 0.0F;
      row[kHeavy] = heavy[t] ? heavy_ : 0.0F;
      fill_shared_and_noise(key, t, row);
      if (const auto needle = needles_.of(t)) fill_needle(*needle, layer, head, row);
      stretch(options_.stretch, 1 / options_.stretch, row);
    }
    store(out);
  }

  void fill_queries(std::uint32_t layer, std::uint32_t head, std::span<float> out) const {
    const std::uint64_t key = stream("query", layer, head);
    for (std::uint64_t t = 0; t < out.size() / shape_.dim; ++t) {
      float* row = out.data() + t * shape_.dim;
      row[kSink] = sink_;
      row[kHeavy] = heavy_;
      fill_shared_and_noise(key, t, row);
      if (needles_.asks(t)) fill_needle(needles_.asked_by(t), layer, head / options_.group, row);
      stretch(1 / options_.stretch, options_.stretch, row);
    }
    store(out);
  }

  void fill_values(std::uint32_t layer, std::uint32_t head, std::span<float> out) const {
    const std::uint64_t key = stream("value", layer, head);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float value = noise_of(key + i);
      out[i] = i / shape_.dim < options_.sinks ? kSinkValue * value : value;
    }
    store(out);
  }

  /// Rounds values to the element type of the trace.
  void store(std::span<float> values) const {
    if (options_.elem == Elem::f32) return;
    for (float& value : values) {
      std::uint16_t half = 0;
      narrow(options_.elem, &value, 1, &half);
      widen(options_.elem, &half, 1, &value);
    }
  }

  const SyntheticOptions& options_;
  const Needles& needles_;
  Shape shape_;
  std::vector<float> shared_;
  float sink_, heavy_, noise_, needle_;
};

}  // namespace

MemoryTrace synthetic_trace(const SyntheticOptions& options) {
  check_options(options);
  Header header = plain_header(model_of(options), options.prompt, options.decode);
  header.elem = options.elem;
  header.writer = std::string("kvsim ") + kVersion;
  header.capture.seed = options.seed;
  const std::uint64_t key = combine({options.seed, key_of("token")});
  for (std::uint64_t t = 0; t < header.n_tokens(); ++t)
    header.token_id[t] = static_cast<std::int32_t>(t == 0 ? 0 : 1 + mix(key ^ mix(t)) % (kVocabulary - 1));
  header.token_flags[0] |= kFlagSpecial;
  const Needles needles(options);
  needles.mark(header);
  MemoryTrace trace(std::move(header));
  Generator(options, needles).fill(trace);
  return trace;
}

}  // namespace kvsim::trace
