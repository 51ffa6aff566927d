#include "traces/model/model_config.hpp"

#include <unistd.h>

#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/gguf_model.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr std::size_t kMaxConfigValues = 100'000;
constexpr std::uint64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
constexpr std::uint64_t kMaxWidth = 1ULL << 20, kMaxVocab = 1ULL << 22, kMaxPositions = 1ULL << 24;

constexpr const char* kElsewhere = "Capture this model with another tool and convert its trace.";

/// The defaults that transformers' configuration class of a model type has for absent fields (5.23), and the
/// parts of its layers.
struct Family {
  std::string_view type;
  std::string_view class_prefix;  ///< prefix of its classes' names
  std::uint64_t kv_heads = 0;     ///< 0: as many as query heads
  std::uint64_t head_dim = 0;     ///< 0: hidden_size / num_attention_heads
  std::uint64_t max_positions = 0;
  double norm_eps = 1e-6;
  /// The layers that use sliding_window: none, all, or those that use_sliding_window and layer_types or
  /// max_window_layers select.
  enum class Sliding { never, always, picked } sliding = Sliding::never;
  std::uint64_t window = 0;  ///< 0: none
};

constexpr Family kFamilies[]{
    {.type = "llama", .class_prefix = "Llama", .max_positions = 2048},
    {.type = "mistral",
     .class_prefix = "Mistral",
     .kv_heads = 8,
     .max_positions = 131072,
     .sliding = Family::Sliding::always,
     .window = 4096},
    {.type = "phi3",
     .class_prefix = "Phi3",
     .max_positions = 4096,
     .norm_eps = 1e-5,
     .sliding = Family::Sliding::always},
    {.type = "qwen2",
     .class_prefix = "Qwen2",
     .kv_heads = 32,
     .max_positions = 32768,
     .sliding = Family::Sliding::picked,
     .window = 4096},
    {.type = "qwen3",
     .class_prefix = "Qwen3",
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .sliding = Family::Sliding::picked,
     .window = 4096},
};
constexpr std::uint64_t kFirstWindowLayer = 28;  ///< default of max_window_layers for both Qwens

/// A number: absence means the class's default `absent`, null means that there is none.
std::uint64_t number_or_none(const JsonObject& config, const char* field, std::uint64_t high,
                             std::uint64_t absent, std::uint64_t none) {
  return config.integer_or(field, 1, high, config.raw().contains(field) ? none : absent);
}

void refuse_if_present(const JsonObject& config, const char* field, const char* what) {
  if (config.has(field)) input_error(what, config.path(field), kElsewhere);
}

/// Whether the file names only model code that transformers has itself. Phi-3 files name code of their own,
/// which transformers now contains; transformers runs its own unless told to trust the file's.
bool names_known_classes(const JsonObject& config, const Family& family) {
  if (family.type != "phi3") return false;
  for (const auto& [part, name] : config.object("auto_map").raw()) {
    const std::string text = name.is_string() ? std::string(name.get_string()) : "";
    const std::size_t dot = text.rfind('.');
    if (dot == std::string::npos || !text.substr(dot + 1).starts_with(family.class_prefix)) return false;
  }
  return true;
}

/// Refuses fields that change the computation of a model in ways that kvsim does not support.
void refuse_foreign_parts(const JsonObject& config, const Family& family) {
  refuse_if_present(config, "quantization_config", "quantised checkpoints are not supported");
  if (config.has("auto_map") && !names_known_classes(config, family)) {
    refuse_if_present(config, "auto_map",
                      "the checkpoint brings its own model code, which kvsim does not run");
  }
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts"})
    refuse_if_present(config, field, "mixture-of-experts models are not supported");
  const std::string activation = config.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    input_error("activation " + quoted(activation) + " is not supported, only silu",
                config.path("hidden_act"), kElsewhere);
}

const Family& checked_family(const JsonObject& config) {
  const std::string type = config.text("model_type");
  std::string list;
  for (const Family& known : kFamilies) {
    if (known.type == type) return known;
    list += (list.empty() ? "" : ", ") + std::string(known.type);
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

void read_shape(const JsonObject& config, const Family& family, ModelConfig& model) {
  const auto field = [&](const char* name, std::uint64_t high) {
    return static_cast<std::uint32_t>(config.integer(name, 1, high));
  };
  model.n_layers = field("num_hidden_layers", kMaxLayers);
  model.hidden_size = field("hidden_size", kMaxWidth);
  model.intermediate_size = field("intermediate_size", kMaxWidth);
  model.vocab_size = field("vocab_size", kMaxVocab);
  model.max_positions = config.integer_or("max_position_embeddings", 1, kMaxPositions, family.max_positions);
  model.n_heads = field("num_attention_heads", kMaxHeads);
  model.n_kv_heads = static_cast<std::uint32_t>(
      number_or_none(config, "num_key_value_heads", kMaxHeads,
                     family.kv_heads != 0 ? family.kv_heads : model.n_heads, model.n_heads));
  if (model.n_heads % model.n_kv_heads != 0) {
    input_error(std::to_string(model.n_heads) + " query heads cannot share " +
                    std::to_string(model.n_kv_heads) + " key-value heads evenly",
                config.path("num_key_value_heads"));
  }
  if (config.has("head_dim")) {
    model.head_dim = field("head_dim", kMaxHeadDim);
  } else if (family.head_dim != 0) {
    model.head_dim = static_cast<std::uint32_t>(family.head_dim);
  } else {
    if (model.hidden_size % model.n_heads != 0 || model.hidden_size / model.n_heads > kMaxHeadDim)
      input_error("head_dim is absent, and hidden_size / num_attention_heads gives none", config.where());
    model.head_dim = model.hidden_size / model.n_heads;
  }
  if (model.head_dim % 2 != 0) input_error("head_dim must be even for rotary embedding", config.where());
}

/// The windows by the family's fields, before layer_types is applied.
std::vector<std::int32_t> windows_of_family(const JsonObject& config, const Family& family,
                                            std::uint32_t n_layers, std::int32_t window) {
  std::uint64_t first = n_layers;
  if (family.sliding == Family::Sliding::always) first = 0;
  if (family.sliding == Family::Sliding::picked)
    first = config.integer_or("max_window_layers", 0, kMaxLayers, kFirstWindowLayer);
  std::vector<std::int32_t> windows(n_layers, -1);
  for (std::uint64_t layer = first; layer < n_layers && window > 0; ++layer) windows[layer] = window;
  return windows;
}

/// The window of sliding layers; 0 if there is none.
std::int32_t read_window(const JsonObject& config, const Family& family) {
  constexpr const char* kField = "sliding_window";
  if (family.sliding == Family::Sliding::never) {
    refuse_if_present(config, kField, "a model of this type has no sliding window");
    return 0;
  }
  if (family.sliding == Family::Sliding::picked && !config.flag_or("use_sliding_window", false)) return 0;
  return static_cast<std::int32_t>(
      number_or_none(config, kField, std::numeric_limits<std::int32_t>::max(), family.window, 0));
}

/// The window of each layer. layer_types selects the sliding layers if the family allows it, and must agree
/// with the family's fields otherwise.
std::vector<std::int32_t> read_windows(const JsonObject& config, const Family& family,
                                       std::uint32_t n_layers) {
  const std::int32_t window = read_window(config, family);
  std::vector<std::int32_t> windows = windows_of_family(config, family, n_layers, window);
  if (!config.has("layer_types")) return windows;
  const std::string where = config.path("layer_types");
  const json::array& types = config.array("layer_types");
  if (types.size() != n_layers) {
    input_error("lists " + std::to_string(types.size()) + " layers of " + std::to_string(n_layers), where);
  }
  for (std::size_t layer = 0; layer < n_layers; ++layer) {
    const bool slides = types[layer] == "sliding_attention";
    if (!slides && types[layer] != "full_attention") {
      input_error("expected full_attention or sliding_attention for layer " + std::to_string(layer), where);
    }
    if (family.sliding == Family::Sliding::picked && window > 0) windows[layer] = slides ? window : -1;
    if (slides != (windows[layer] > 0)) {
      input_error(
          "layer " + std::to_string(layer) + " is said to " +
              (slides ? "slide, but there is no window in use" : "see everything, but a window is set"),
          where);
    }
  }
  return windows;
}

}  // namespace

const std::vector<std::string>& supported_model_types() {
  static const std::vector<std::string> kTypes = [] {
    std::vector<std::string> types;
    for (const Family& family : kFamilies) types.emplace_back(family.type);
    return types;
  }();
  return kTypes;
}

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  const json::value document = parse_strict_json(text, path, kMaxConfigValues);
  const JsonObject config(document, path);
  ModelConfig model;
  const Family& family = checked_family(config);
  model.model_type = family.type;
  model.architecture = first_architecture(config);
  refuse_foreign_parts(config, family);
  read_shape(config, family, model);
  model.norm_eps = config.number_or("rms_norm_eps", 0, 1, family.norm_eps);
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
  model.fused_projections = model.model_type == "phi3";
  if (config.has("tie_word_embeddings")) model.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  model.rope = read_rope(config, {model.model_type, model.head_dim, model.max_positions});
  model.layer_window = read_windows(config, family, model.n_layers);
  model.eos = token_ids(config, "eos_token_id", model.vocab_size);
  model.json = text;
  return model;
}

ModelConfig load_model_config(const std::string& model_path) {
  if (is_gguf(model_path))
    return parse_model_config(gguf_config(model_path), model_path + " as config.json:");
  const std::string path = model_path + "/config.json";
  ModelConfig model = parse_model_config(read_regular_file(path, kMaxConfigBytes), path);
  const std::string generation = model_path + "/generation_config.json";
  if (::access(generation.c_str(), F_OK) == 0) {
    const json::value document =
        parse_strict_json(read_regular_file(generation, kMaxConfigBytes), generation, kMaxConfigValues);
    const std::vector<std::int32_t> eos =
        token_ids(JsonObject(document, generation), "eos_token_id", model.vocab_size);
    if (!eos.empty()) model.eos = eos;
  }
  return model;
}

}  // namespace kvsim::model
