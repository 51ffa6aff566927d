#include "traces/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr double kHuge = std::numeric_limits<double>::max(), kMaxFactor = 1e6;
constexpr const char* kPartial = "partial_rotary_factor";
constexpr const char* kOriginal = "original_max_position_embeddings";

bool is_phi3(const RopeContext& context) {
  return context.model_type == "phi3";
}

/// The type under either spelling ("rope_type", older "type"); the two must agree. Older Phi-3 files call
/// longrope "su" or "yarn".
std::string rope_type_of(const JsonObject& scaling, const RopeContext& context) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (scaling.text_or("type", type) != type) input_error("rope_type and type disagree", scaling.where());
  return is_phi3(context) && (type == "su" || type == "yarn") ? "longrope" : type;
}

void check_type(const std::string& type, const JsonObject& scaling, const RopeContext& context) {
  if (type == "dynamic") {
    input_error(
        "rope type \"dynamic\" is not supported: its frequencies change as the context grows, so one trace "
        "would hold keys of several rotations",
        scaling.where(), kElsewhere);
  }
  std::vector<std::string> known{"default", "longrope"};
  if (!is_phi3(context)) known.insert(known.end(), {"linear", "llama3", "yarn"});
  if (std::find(known.begin(), known.end(), type) != known.end()) return;
  input_error("rope type " + in_quotes(type) + " is not supported for " + context.model_type, scaling.where(),
              "Supported: " + joined(known) + ".");
}

/// A field of the scaling object that may also stand at the top level; if both have it, they must agree.
template <class Read>
auto from_either(const JsonObject& config, const JsonObject& scaling, const char* field, Read read) {
  const auto inner = read(scaling.has(field) ? scaling : config);
  if (scaling.has(field) && config.has(field) && read(config) != inner)
    input_error(std::string("differs from the one in ") + scaling.where(), config.path(field));
  return inner;
}

std::uint64_t original_positions(const JsonObject& config, const JsonObject& scaling,
                                 const RopeContext& context) {
  constexpr std::uint64_t kPhi3Positions = 4096;  // default of the class, independent of
                                                  // max_position_embeddings
  return from_either(config, scaling, kOriginal, [&](const JsonObject& object) {
    return object.integer_or(kOriginal, 1, kMaxPositions,
                             is_phi3(context) ? kPhi3Positions : context.max_positions);
  });
}

/// 0.1 * weight * ln(factor) + 1, by which yarn sharpens attention (section 3.4 of the paper).
double yarn_temperature(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

void read_yarn(const JsonObject& scaling, RopeConfig& rope) {
  rope.beta_fast = scaling.number_or("beta_fast", 1e-6, kMaxFactor, rope.beta_fast);
  rope.beta_slow = scaling.number_or("beta_slow", 1e-6, kMaxFactor, rope.beta_slow);
  rope.truncate = scaling.flag_or("truncate", true);
  if (rope.theta <= 1) input_error("yarn needs a rope_theta above 1", scaling.where());
  if (rope.beta_slow > rope.beta_fast)  // they are equal in Kimi K2
    input_error("beta_slow must not be larger than beta_fast", scaling.where());
  const double mscale = scaling.number_or("mscale", 0, kMaxFactor, 0);
  const double mscale_all = scaling.number_or("mscale_all_dim", 0, kMaxFactor, 0);
  if (mscale_all > 0) rope.all_temperature = yarn_temperature(rope.factor, mscale_all);
  rope.attention_factor = mscale > 0 && mscale_all > 0 ? yarn_temperature(rope.factor, mscale) /
                                                             yarn_temperature(rope.factor, mscale_all)
                                                       : yarn_temperature(rope.factor, 1);
}

std::vector<double> factors(const JsonObject& scaling, const char* field, std::size_t pairs) {
  const json::array& list = scaling.array(field);
  if (list.size() != pairs) {
    input_error(
        "lists " + std::to_string(list.size()) + " factors for " + std::to_string(pairs) + " rotating pairs",
        scaling.path(field));
  }
  std::vector<double> values;
  for (const json::value& value : list) {
    const double factor = value.is_number() ? value.to_number<double>() : 0;
    if (!(factor >= 1e-3 && factor <= kMaxFactor))
      input_error("expected numbers within 0.001..1e6", scaling.path(field));
    values.push_back(factor);
  }
  return values;
}

void read_longrope(const JsonObject& scaling, const RopeContext& context, RopeConfig& rope) {
  rope.short_factor = factors(scaling, "short_factor", rope.rotary_dim / 2);
  rope.long_factor = factors(scaling, "long_factor", rope.rotary_dim / 2);
  const auto original = static_cast<double>(rope.original_max_positions);
  if (original < 2) input_error("must be at least 2 for longrope", scaling.path(kOriginal));
  const double stretched = static_cast<double>(context.max_positions) / original;
  const double factor = scaling.number_or("factor", 1e-6, kMaxFactor, stretched);
  rope.attention_factor = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
}

void read_scaling(const JsonObject& config, const JsonObject& scaling, const RopeContext& context,
                  RopeConfig& rope) {
  rope.type = rope_type_of(scaling, context);
  check_type(rope.type, scaling, context);
  if (rope.type == "default") return;
  if (rope.type != "longrope") rope.factor = scaling.number("factor", 1, kMaxFactor);
  if (rope.type == "linear") return;
  rope.original_max_positions = original_positions(config, scaling, context);
  if (rope.type == "llama3") {
    rope.low_freq_factor = scaling.number("low_freq_factor", 1e-6, kMaxFactor);
    rope.high_freq_factor = scaling.number("high_freq_factor", 1e-6, kMaxFactor);
    if (rope.low_freq_factor >= rope.high_freq_factor)
      input_error("low_freq_factor must be smaller than high_freq_factor", scaling.where());
    return;
  }
  if (rope.type == "yarn") {
    read_yarn(scaling, rope);
  } else {
    read_longrope(scaling, context, rope);
  }
  rope.attention_factor = scaling.number_or("attention_factor", 1e-6, kMaxFactor, rope.attention_factor);
}

std::uint32_t read_rotary_dim(const JsonObject& config, const JsonObject& scaling,
                              const RopeContext& context) {
  const bool known = context.partial_rotary != 0;
  const double part = from_either(config, scaling, kPartial, [&](const JsonObject& object) {
    return object.number_or(kPartial, 0, 1, known ? context.partial_rotary : 1);
  });
  if (part != 1 && !known) {
    input_error("partial rotary embedding is not known for " + context.model_type,
                (scaling.has(kPartial) ? scaling : config).path(kPartial), kElsewhere);
  }
  const auto dim = static_cast<std::uint32_t>(context.head_dim * part);
  if (dim == 0 || dim % 2 != 0) {
    input_error("RoPE would turn " + std::to_string(dim) + " of a head's " +
                    std::to_string(context.head_dim) + " components; it needs an even number",
                config.where());
  }
  return dim;
}

/// The pair that makes `turns` turns within the original context.
double yarn_pair(const RopeConfig& rope, double turns) {
  const auto original = static_cast<double>(rope.original_max_positions);
  return rope.rotary_dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

float yarn_frequency(const RopeConfig& rope, std::size_t pair, float f) {
  double low = yarn_pair(rope, rope.beta_fast), high = yarn_pair(rope, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  const double ramp = (static_cast<double>(pair) - low) / (high - low);
  const auto divided = static_cast<float>(std::clamp(ramp, 0.0, 1.0));
  return f / static_cast<float>(rope.factor) * divided + f * (1 - divided);
}

float llama3_frequency(const RopeConfig& rope, float f) {
  const auto factor = static_cast<float>(rope.factor);
  const auto old = static_cast<float>(rope.original_max_positions);
  const auto low = static_cast<float>(rope.low_freq_factor), high = static_cast<float>(rope.high_freq_factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / f;
  if (wavelength > old / low) return f / factor;
  if (wavelength < old / high) return f;
  const float keep = (old / wavelength - low) / (high - low);
  return (1 - keep) * f / factor + keep * f;
}

}  // namespace

namespace {

RopeConfig read_scaled(const JsonObject& config, const JsonObject& scaling, const RopeContext& context) {
  RopeConfig rope;
  rope.theta = from_either(config, scaling, "rope_theta", [&](const JsonObject& object) {
    return object.number_or("rope_theta", 1, kHuge, context.theta);
  });
  rope.rotary_dim = read_rotary_dim(config, scaling, context);
  read_scaling(config, scaling, context, rope);
  return rope;
}

}  // namespace

RopeConfig read_rope(const JsonObject& config, const RopeContext& context) {
  const bool newer = config.has("rope_parameters"), older = config.has("rope_scaling");
  if (newer && older)
    input_error("both rope_parameters and rope_scaling are given: which one holds?", config.where());
  const json::value nothing(json::object_kind);
  const JsonObject scaling = newer   ? config.object("rope_parameters")
                             : older ? config.object("rope_scaling")
                                     : JsonObject(nothing, config.where());
  for (const auto& member : scaling.raw()) {
    if (member.value().is_object())
      input_error("rotary parameters per layer type are not supported", scaling.where(), kElsewhere);
  }
  return read_scaled(config, scaling, context);
}

std::pair<RopeConfig, RopeConfig> read_two_ropes(const JsonObject& config, const RopeContext& context) {
  RopeContext of_windows = context;
  if (context.window_theta != 0)
    of_windows.theta = config.number_or("rope_local_base_freq", 1, kHuge, context.window_theta);
  if (config.has("rope_parameters")) {
    const JsonObject both = config.object("rope_parameters");
    return {read_scaled(config, both.object("full_attention"), context),
            read_scaled(config, both.object("sliding_attention"), of_windows)};
  }
  const json::value nothing(json::object_kind);
  const JsonObject none(nothing, config.where());
  const bool scaled = config.has("rope_scaling");
  RopeConfig full = read_scaled(config, scaled ? config.object("rope_scaling") : none, context);
  if (context.window_theta == 0) of_windows.theta = full.theta;
  return {full, read_scaled(none, none, of_windows)};
}

std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint64_t positions) {
  const std::vector<double>& divisors =
      positions > rope.original_max_positions ? rope.long_factor : rope.short_factor;
  std::vector<float> frequencies(rope.rotary_dim / 2);
  if (rope.type == "none") return frequencies;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    const float period = std::pow(static_cast<float>(rope.theta), exponent), f = 1.0F / period;
    if (rope.type == "linear") {
      frequencies[i] = f / static_cast<float>(rope.factor);
    } else if (rope.type == "llama3") {
      frequencies[i] = llama3_frequency(rope, f);
    } else if (rope.type == "yarn") {
      frequencies[i] = yarn_frequency(rope, i, f);
    } else if (rope.type == "longrope") {
      frequencies[i] = 1.0F / (static_cast<float>(divisors[i]) * period);
    } else {
      frequencies[i] = f;
    }
  }
  return frequencies;
}

void check_rope_regime(const RopeConfig& rope, std::uint64_t prompt, std::uint64_t positions) {
  const std::uint64_t original = rope.original_max_positions;
  if (rope.type != "longrope" || prompt > original || positions <= original) return;
  usage_error("the run starts below " + std::to_string(original + 1) + " tokens and may grow to " +
                  std::to_string(positions) +
                  ": a longrope model would rotate by its long factors from there on, and the keys it has by "
                  "its short ones",
              "--max-new-tokens",
              "At most " + std::to_string(original - prompt) +
                  " keep to the short factors; a prompt of more than " + std::to_string(original) +
                  " tokens has the long ones from the start.");
}

RopeTable rope_table(std::span<const float> frequencies, double attention_factor, std::uint64_t first,
                     std::uint64_t n) {
  RopeTable table{frequencies.size(), {}, {}};
  const auto scale = static_cast<float>(attention_factor);
  table.cosine.reserve(n * frequencies.size());
  table.sine.reserve(n * frequencies.size());
  for (std::uint64_t position = first; position < first + n; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      table.cosine.push_back(std::cos(angle) * scale);
      table.sine.push_back(std::sin(angle) * scale);
    }
  }
  return table;
}

}  // namespace kvsim::model
