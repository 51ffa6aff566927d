#include "traces/capture/model_config.hpp"

#include <unistd.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr std::size_t kMaxConfigValues = 100'000;
constexpr std::uint64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
constexpr std::uint64_t kMaxWidth = 1ULL << 20, kMaxVocab = 1ULL << 22, kMaxPositions = 1ULL << 24;
constexpr double kHuge = std::numeric_limits<double>::max();

constexpr const char* kElsewhere = "Capture this model with another tool and convert its trace.";

void refuse_if_present(const JsonObject& config, const char* field, const char* what) {
  if (config.has(field)) input_error(what, config.path(field), kElsewhere);
}

/// Fields that change what a model computes in ways this program does not follow.
void refuse_foreign_parts(const JsonObject& config) {
  refuse_if_present(config, "quantization_config", "quantised checkpoints are not supported");
  refuse_if_present(config, "auto_map", "the checkpoint brings its own model code, which kvsim does not run");
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts"})
    refuse_if_present(config, field, "mixture-of-experts models are not supported");
  const std::string activation = config.text_or("hidden_act", "silu");
  if (activation != "silu")
    input_error("activation " + quoted(activation) + " is not supported, only silu",
                config.path("hidden_act"), kElsewhere);
  if (config.number_or("partial_rotary_factor", 0, 1, 1) != 1)
    input_error("partial rotary embedding is not supported", config.path("partial_rotary_factor"),
                kElsewhere);
}

std::string checked_model_type(const JsonObject& config) {
  const std::string type = config.text("model_type");
  std::string list;
  for (const std::string& known : supported_model_types()) {
    if (known == type) return type;
    list += (list.empty() ? "" : ", ") + known;
  }
  const std::string near = suggestion(type, supported_model_types());
  input_error("model type " + quoted(type) + " is not supported", config.path("model_type"),
              "Supported: " + list + (near.starts_with("Did") ? ". " + near : "."));
}

std::string first_architecture(const JsonObject& config) {
  if (!config.has("architectures")) return {};
  const json::array& names = config.array("architectures");
  if (names.empty()) return {};
  if (!names[0].is_string()) input_error("expected strings", config.path("architectures"));
  return std::string(names[0].get_string());
}

std::vector<std::int32_t> token_ids(const JsonObject& config, const char* field, std::uint64_t vocab_size) {
  std::vector<std::int32_t> ids;
  const json::value* value = config.find(field);
  if (value == nullptr) return ids;
  const auto add = [&](const json::value& id) {
    ids.push_back(static_cast<std::int32_t>(json_integer(id, config.path(field), 0, vocab_size - 1)));
  };
  if (value->is_array()) {
    for (const json::value& id : value->get_array()) add(id);
  } else {
    add(*value);
  }
  return ids;
}

void read_shape(const JsonObject& config, ModelConfig& model) {
  const auto field = [&](const char* name, std::uint64_t high) {
    return static_cast<std::uint32_t>(config.integer(name, 1, high));
  };
  model.n_layers = field("num_hidden_layers", kMaxLayers);
  model.hidden_size = field("hidden_size", kMaxWidth);
  model.intermediate_size = field("intermediate_size", kMaxWidth);
  model.vocab_size = field("vocab_size", kMaxVocab);
  model.max_positions = config.integer("max_position_embeddings", 1, kMaxPositions);
  model.n_heads = field("num_attention_heads", kMaxHeads);
  model.n_kv_heads =
      static_cast<std::uint32_t>(config.integer_or("num_key_value_heads", 1, kMaxHeads, model.n_heads));
  if (model.n_heads % model.n_kv_heads != 0) {
    input_error(std::to_string(model.n_heads) + " query heads cannot share " +
                    std::to_string(model.n_kv_heads) + " key-value heads evenly",
                config.path("num_key_value_heads"));
  }
  if (config.has("head_dim")) {
    model.head_dim = field("head_dim", kMaxHeadDim);
  } else {
    if (model.hidden_size % model.n_heads != 0 || model.hidden_size / model.n_heads > kMaxHeadDim)
      input_error("head_dim is absent, and hidden_size / num_attention_heads gives none", config.where());
    model.head_dim = model.hidden_size / model.n_heads;
  }
  if (model.head_dim % 2 != 0) input_error("head_dim must be even for rotary embedding", config.where());
}

/// Either spelling of the type ("rope_type", older "type"); the two may not disagree.
std::string rope_type_of(const JsonObject& scaling) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (scaling.text_or("type", type) != type) input_error("rope_type and type disagree", scaling.where());
  return type;
}

void read_scaling(const JsonObject& scaling, RopeConfig& rope) {
  rope.type = rope_type_of(scaling);
  if (scaling.number_or("partial_rotary_factor", 0, 1, 1) != 1)
    input_error("partial rotary embedding is not supported", scaling.where(), kElsewhere);
  if (rope.type == "default") return;
  if (rope.type == "dynamic") {
    input_error(
        "rope type \"dynamic\" is not supported: its frequencies change as the context grows, so one trace "
        "would hold keys of several rotations",
        scaling.where(), kElsewhere);
  }
  if (rope.type != "linear" && rope.type != "llama3") {
    input_error("rope type " + quoted(rope.type) + " is not supported", scaling.where(),
                "Supported: default, linear, llama3.");
  }
  rope.factor = scaling.number("factor", 1, 1e6);
  if (rope.type == "linear") return;
  rope.low_freq_factor = scaling.number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = scaling.number("high_freq_factor", 1e-6, 1e6);
  rope.original_max_positions =
      static_cast<double>(scaling.integer("original_max_position_embeddings", 1, kMaxPositions));
  if (rope.low_freq_factor >= rope.high_freq_factor)
    input_error("low_freq_factor must be smaller than high_freq_factor", scaling.where());
}

/// rope_theta and rope_scaling at the top (most files), or one rope_parameters object (transformers 5).
RopeConfig read_rope(const JsonObject& config) {
  RopeConfig rope;
  rope.theta = config.number_or("rope_theta", 1, kHuge, rope.theta);
  if (config.has("rope_parameters")) {
    if (config.has("rope_scaling"))
      input_error("both rope_parameters and rope_scaling are given: which one holds?", config.where());
    const JsonObject parameters = config.object("rope_parameters");
    for (const auto& member : parameters.raw()) {
      if (member.value().is_object())
        input_error("rotary parameters per layer type are not supported", parameters.where(), kElsewhere);
    }
    const double theta = parameters.number_or("rope_theta", 1, kHuge, rope.theta);
    if (config.has("rope_theta") && theta != rope.theta)
      input_error("rope_theta differs from the one in rope_parameters", config.where());
    rope.theta = theta;
    read_scaling(parameters, rope);
  } else if (config.has("rope_scaling")) {
    read_scaling(config.object("rope_scaling"), rope);
  }
  return rope;
}

/// Mistral slides in every layer. Qwen slides where layer_types says so; older files give use_sliding_window
/// and the first sliding layer instead.
std::vector<std::int32_t> read_windows(const JsonObject& config, const ModelConfig& model) {
  std::vector<std::int32_t> windows(model.n_layers, -1);
  if (!config.has("sliding_window")) return windows;
  if (model.model_type == "llama") {
    input_error("a Llama model has no sliding window", config.path("sliding_window"),
                "If the model does slide, its model_type is mistral.");
  }
  const auto window = static_cast<std::int32_t>(
      config.integer("sliding_window", 1, std::numeric_limits<std::int32_t>::max()));
  const bool qwen = model.model_type != "mistral";
  if (qwen && !config.flag_or("use_sliding_window", false)) return windows;
  if (qwen && config.has("layer_types")) {
    const json::array& types = config.array("layer_types");
    if (types.size() != model.n_layers) {
      input_error("lists " + std::to_string(types.size()) + " layers of " + std::to_string(model.n_layers),
                  config.path("layer_types"));
    }
    for (std::size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "sliding_attention") {
        windows[layer] = window;
      } else if (types[layer] != "full_attention") {
        input_error("expected full_attention or sliding_attention for layer " + std::to_string(layer),
                    config.path("layer_types"));
      }
    }
    return windows;
  }
  const std::uint64_t first = qwen ? config.integer("max_window_layers", 0, kMaxLayers) : 0;
  for (std::uint64_t layer = first; layer < windows.size(); ++layer) windows[layer] = window;
  return windows;
}

}  // namespace

const std::vector<std::string>& supported_model_types() {
  static const std::vector<std::string> kTypes{"llama", "mistral", "qwen2", "qwen3"};
  return kTypes;
}

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  const json::value document = parse_strict_json(text, path, kMaxConfigValues);
  const JsonObject config(document, path);
  ModelConfig model;
  model.model_type = checked_model_type(config);
  model.architecture = first_architecture(config);
  refuse_foreign_parts(config);
  read_shape(config, model);
  model.norm_eps = config.number_or("rms_norm_eps", 0, 1, 1e-6);
  const bool llama = model.model_type == "llama", qwen3 = model.model_type == "qwen3";
  const bool attention_bias = config.flag_or("attention_bias", false);
  if (attention_bias && !llama && !qwen3)
    input_error("attention_bias is not known for " + model.model_type, config.path("attention_bias"));
  model.qkv_bias = attention_bias || model.model_type == "qwen2";
  model.output_bias = attention_bias;
  model.mlp_bias = config.flag_or("mlp_bias", false);
  if (model.mlp_bias && !llama)
    input_error("mlp_bias is not known for " + model.model_type, config.path("mlp_bias"));
  model.qk_norm = qwen3;
  if (config.has("tie_word_embeddings")) model.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  model.rope = read_rope(config);
  model.layer_window = read_windows(config, model);
  model.eos = token_ids(config, "eos_token_id", model.vocab_size);
  model.json = text;
  return model;
}

ModelConfig load_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  ModelConfig model = parse_model_config(read_file(path, kMaxConfigBytes), path);
  const std::string generation = directory + "/generation_config.json";
  if (::access(generation.c_str(), F_OK) == 0) {
    const json::value document =
        parse_strict_json(read_file(generation, kMaxConfigBytes), generation, kMaxConfigValues);
    const std::vector<std::int32_t> eos =
        token_ids(JsonObject(document, generation), "eos_token_id", model.vocab_size);
    if (!eos.empty()) model.eos = eos;
  }
  return model;
}

std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint32_t head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float f = 1.0F / std::pow(static_cast<float>(rope.theta), exponent);
    const auto factor = static_cast<float>(rope.factor);
    if (rope.type == "linear") {
      f /= factor;
    } else if (rope.type == "llama3") {
      const auto old = static_cast<float>(rope.original_max_positions);
      const auto low = static_cast<float>(rope.low_freq_factor),
                 high = static_cast<float>(rope.high_freq_factor);
      const float wavelength = 2 * std::numbers::pi_v<float> / f;
      if (wavelength > old / low) {
        f /= factor;
      } else if (wavelength >= old / high) {
        const float keep = (old / wavelength - low) / (high - low);
        f = (1 - keep) * f / factor + keep * f;
      }
    }
    frequencies[i] = f;
  }
  return frequencies;
}

}  // namespace kvsim::capture
