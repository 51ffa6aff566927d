#include "traces/model/model_config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/gguf_model.hpp"
#include "traces/model/model_layers.hpp"

namespace kvsim::model {

std::string_view config_fields_text();  // config_fields.txt, compiled in (CMakeLists.txt)

namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr std::uint64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
constexpr std::uint64_t kMaxWidth = 1ULL << 20, kMaxVocab = 1ULL << 22;

constexpr std::uint64_t kFirstWindowLayer = 28;  ///< default of max_window_layers for both Qwens

/// What the reader of a file wants of it.
enum class Purpose {
  sizes,  ///< to know what the model takes
  run,    ///< to compute it
};

/// A number: absence means the class's default `absent`, null means that there is none.
std::uint64_t number_or_none(const JsonObject& config, const char* field, std::uint64_t high,
                             std::uint64_t absent, std::uint64_t none) {
  return config.integer_or(field, 1, high, config.raw().contains(field) ? none : absent);
}

void refuse_if_present(const JsonObject& config, const char* field, const char* what,
                       const char* hint = kElsewhere) {
  if (config.has(field)) input_error(what, config.path(field), hint);
}

/// Whether the file names only model code that changes nothing: transformers runs its own unless told to
/// trust the file's.
bool names_known_classes(const JsonObject& config, const Family& family) {
  if (family.code.empty()) return false;
  for (const auto& [part, name] : config.object("auto_map").raw()) {
    if (part == "AutoTokenizer") continue;  // Phi-4-mini takes another model's
    const std::string text = name.is_string() ? std::string(name.get_string()) : "";
    const std::size_t dot = text.rfind('.');
    if (dot == std::string::npos || !text.substr(dot + 1).starts_with(family.code)) return false;
  }
  return true;
}

/// Parts of names of fields that change what a model takes, and what they say. A field with such a name that
/// the reader of its family did not ask for is refused.
constexpr std::pair<std::string_view, const char*> kForeign[]{
    {"expert", "a model of this type has no experts"},
    {"moe_", "a model of this type has no experts"},
    {"lora_rank", "a model of this type has no latent attention"},
    {"index_topk", "sparse attention with an index is not supported"},
    {"mamba", "a model of this type has no state space layers"},
    {"ssm_", "a model of this type has no state space layers"},
    {"linear_", "a model of this type has no linear attention"},
    {"conv_", "a model of this type has no convolutions"},
    {"attn_layer", "a model of this type has no layers without attention"},
    {"layers_block_type", "a model of this type has no layers of several types"},
    {"block_configs", "layers of several shapes are not supported"},
    {"hybrid_", "a model of this type has no layers of several types"},
    {"kv_shared", "layers that share a cache are not supported"},
    {"per_layer", "embeddings of each layer are not supported"},
    {"nextn", "a model of this type has no layers that predict further tokens"},
    {"attention_chunk", "attention within chunks is not supported"},
};

/// The same without a word on what they say; a name that begins with n_ is another.
constexpr std::string_view kTelling[]{"attn",   "attention", "head",   "layer",    "window", "sliding",
                                      "cache",  "kv",        "rank",   "chunk",    "shared", "state",
                                      "sparse", "sink",      "latent", "compress", "recurr", "block",
                                      "width",  "size",      "dim",    "num_",     "mtp",    "mamba"};

/// Fields with such names that change nothing here: how a model is trained, run and generated from; or they
/// are read where they count, and otherwise mean nothing. Then fields that change what is computed, not what
/// it takes. Both of config_fields.txt.
enum FieldList : std::size_t { kHarmless, kComputed };
bool is_listed(FieldList list, std::string_view name) {
  static const std::vector<std::vector<std::string>> kLists = text_words(config_fields_text());
  return std::ranges::find(kLists.at(list), name) != kLists[list].end();
}

/// Whether a field says that its feature is absent.
bool says_none(const json::value& value) {
  return value.is_null() || value == false || value == 0 || (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}

/// Refuses fields that may change what a model takes or computes and that were not asked for.
void refuse_foreign_parts(const JsonObject& config, const std::set<std::string>& asked, Purpose purpose) {
  const auto has = [](std::string_view name, std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  for (const auto& [field, value] : config.raw()) {
    const std::string_view name(field.data(), field.size());
    if (name.starts_with("kvsim_") || says_none(value) || asked.contains(std::string(name)) ||
        is_listed(kHarmless, name) || (purpose == Purpose::sizes && is_listed(kComputed, name)))
      continue;
    const char* what =
        name.starts_with("n_") || std::any_of(std::begin(kTelling), std::end(kTelling),
                                              [&](std::string_view part) { return has(name, part); })
            ? "is not known, and by its name it may change attention, the cache or sizes"
            : nullptr;
    for (const auto& [part, says] : kForeign)
      if (has(name, part)) what = says;
    if (what != nullptr)
      input_error(what, config.path(name),
                  purpose == Purpose::run ? kElsewhere
                                          : "If it changes nothing, leave it out of a copy of the file.");
  }
}

/// The function of a feed-forward: a gated one has its family's, any other what the file names.
Activation read_activation(const JsonObject& config, const Family& family) {
  using Known = std::pair<std::string_view, Activation>;
  // Gemma's files say gelu, or another field says what is meant, and mean the approximation.
  static constexpr Known kOfGelu[]{{"gelu_pytorch_tanh", Activation::gelu_tanh},
                                   {"gelu", Activation::gelu_tanh}};
  static constexpr Known kOfSilu[]{{"silu", Activation::silu}, {"swish", Activation::silu}};
  static constexpr Known kPlain[]{{"gelu", Activation::gelu},
                                  {"relu", Activation::relu},
                                  {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                  {"gelu_new", Activation::gelu_tanh},
                                  {"gelu_fast", Activation::gelu_tanh}};
  const std::span<const Known> known = !family.parts.gated_mlp ? std::span<const Known>(kPlain)
                                       : family.parts.activation == Activation::silu ? kOfSilu
                                                                                     : kOfGelu;
  const std::string field(family.activation), name = config.text_or(field.c_str(), "");
  if (name.empty()) return family.parts.activation;
  std::string list;
  for (const auto& [theirs, activation] : known) {
    if (theirs == name) return activation;
    list += (list.empty() ? "" : ", ") + std::string(theirs);
  }
  input_error("activation " + in_quotes(name) + " is not supported, only " + list, config.path(field),
              kElsewhere);
}

/// Refuses what kvsim knows the sizes of, but does not compute.
void refuse_to_run(const JsonObject& config, const Family& family, const ModelConfig& model) {
  if (model.head_dim % 2 != 0 && family.rotated != Family::Rotated::never)
    input_error("head_dim must be even for rotary embedding", config.where());
}

const Family& checked_family(const JsonObject& config, Purpose purpose) {
  const std::string type = config.text("model_type");
  std::vector<std::string> names;
  for (const Family& known : families()) {
    if (purpose == Purpose::run && known.sizes_only) continue;
    if (known.type == type) return known;
    names.emplace_back(known.type);
  }
  const std::string near = suggestion(type, names);
  const char* alike = purpose == Purpose::run
                          ? ""
                          : " If its layers are those of one of these, say so in a copy of the file.";
  input_error("model type " + in_quotes(type) + " is not supported", config.path("model_type"),
              "Supported: " + joined(names) + (near.starts_with("Did") ? ". " + near : ".") + alike);
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

/// A field under any of its names, of which messages show the first.
std::uint32_t named(const JsonObject& config, std::initializer_list<const char*> names, std::uint64_t high,
                    std::uint64_t absent = 0) {
  for (const char* name : names)
    if (config.has(name)) return static_cast<std::uint32_t>(config.integer(name, 1, high));
  return static_cast<std::uint32_t>(absent != 0 ? absent : config.integer(*names.begin(), 1, high));
}

void read_shape(const JsonObject& config, const Family& family, ModelConfig& model) {
  // Nemotron-H, as transformers 5 saves it, says only what each layer is.
  const bool listed = family.memory == Family::Memory::nemotron && config.has("layers_block_type");
  model.n_layers =
      named(config, {"num_hidden_layers", "n_layer"}, kMaxLayers,
            listed ? std::min<std::uint64_t>(kMaxLayers, config.array("layers_block_type").size()) : 0);
  model.hidden_size = named(config, {"hidden_size", "n_embd"}, kMaxWidth);
  // A class all of whose layers have experts of a width of their own does without it.
  const bool no_mlp = family.experts.width != 0 && family.sparse == Family::Sparse::all &&
                      family.memory != Family::Memory::nemotron;
  if (config.has("intermediate_size") || !no_mlp)
    model.intermediate_size = named(config, {"intermediate_size", "ffn_dim", "n_inner"}, kMaxWidth,
                                    family.type == "gptj" ? 4 * model.hidden_size : 0);
  model.vocab_size = named(config, {"vocab_size"}, kMaxVocab, family.vocab);
  const char* positions = config.has("n_positions")  ? "n_positions"
                          : config.has("seq_length") ? "seq_length"
                                                     : "max_position_embeddings";
  model.max_positions = config.integer_or(positions, 1, kMaxPositions, family.max_positions);
  model.n_heads = named(config, {"num_attention_heads", "n_head"}, kMaxHeads, family.query_heads);
  if (family.latent.rank != 0) return read_latent(config, family, model);
  model.n_kv_heads = static_cast<std::uint32_t>(
      number_or_none(config, "num_key_value_heads", kMaxHeads,
                     family.kv_heads != 0 ? family.kv_heads : model.n_heads, model.n_heads));
  if (model.n_heads % model.n_kv_heads != 0) {
    input_error(std::to_string(model.n_heads) + " query heads cannot share " +
                    std::to_string(model.n_kv_heads) + " key-value heads evenly",
                config.path("num_key_value_heads"));
  }
  if (config.has("head_dim") || config.has("attention_head_dim") || config.has("kv_channels")) {
    model.head_dim = named(config, {"head_dim", "attention_head_dim", "kv_channels"}, kMaxHeadDim);
  } else if (family.head_dim != 0) {
    model.head_dim = family.head_dim;
  } else {
    if (model.hidden_size % model.n_heads != 0 || model.hidden_size / model.n_heads > kMaxHeadDim)
      input_error("head_dim is absent, and hidden_size / num_attention_heads gives none", config.where());
    model.head_dim = model.hidden_size / model.n_heads;
  }
}

/// A flag of biases, which only some classes know.
bool bias_flag(const JsonObject& config, const Family& family, const char* field, bool known, bool absent) {
  const bool flag = config.flag_or(field, absent);
  if (flag && !known)
    input_error(field + (" is not known for " + std::string(family.type)), config.path(field));
  return flag;
}

void read_parts(const JsonObject& config, const Family& family, ModelConfig& model) {
  static_cast<LayerParts&>(model) = family.parts;
  // Files of llama.cpp have the whole factors of norms.
  if (config.flag_or("kvsim_whole_norms", false)) model.norms_from_one = false;
  if (config.flag_or("kvsim_fused_qkv", false)) model.fused_qkv = true;
  const bool known = family.attention_bias != Family::Biased::none;
  const bool biased = bias_flag(config, family, "attention_bias", known, known && family.parts.qkv_bias);
  if (known) model.qkv_bias = biased;
  if (family.attention_bias == Family::Biased::all) model.output_bias = biased;
  if (bias_flag(config, family, "mlp_bias", family.mlp_bias, false)) model.mlp_bias = true;
  if (family.type == "qwen2_moe") model.qkv_bias = config.flag_or("qkv_bias", true);
  if (family.type == "glm4_moe") model.qk_norm = config.flag_or("use_qk_norm", false);
  if (model.bare_qk_norm) model.qk_norm = model.bare_qk_norm = config.flag_or("use_qk_norm", true);
  if (family.type == "gpt_neox") model.parallel = config.flag_or("use_parallel_residual", true);
  if (family.parts.parallel && !config.flag_or("use_parallel_block", true))
    input_error("blocks of two parts, one behind the other, are not supported",
                config.path("use_parallel_block"));
  if (family.type == "cohere") model.qk_norm = model.wide_qk_norm = config.flag_or("use_qk_norm", false);
  if (family.type == "minimax_m2" && config.has("attn_type_list"))
    for (const json::value& type : config.array("attn_type_list"))
      if (type != 1)
        input_error("only layers of type 1, softmax attention, are supported", config.path("attn_type_list"));
  if (family.memory == Family::Memory::delta)
    model.gated_attention = config.flag_or("attn_output_gate", true);
  if (family.experts.count != 0 || family.memory == Family::Memory::delta) {
    for (const char* kinds : {"mtp_hybrid_override_pattern", "mtp_layers_block_type"})
      (void)config.has(kinds);
    for (const char* further :
         {"num_nextn_predict_layers", "num_mtp_modules", "mtp_transformer_layers", "mtp_num_hidden_layers"})
      if (config.integer_or(further, 0, kMaxLayers, 0) > 0) model.predicts_further = true;
  }
  if (config.has("tie_word_embeddings")) model.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  model.tied_by_default = family.tied;
  if (family.latent.rank != 0)
    model.interleaved = config.flag_or("rope_interleave", family.parts.interleaved);
  if (family.type == "opt") {
    if (config.integer_or("word_embed_proj_dim", 1, kMaxWidth, model.hidden_size) != model.hidden_size)
      input_error("an embedding narrower than the model is not supported",
                  config.path("word_embed_proj_dim"));
    if (!config.flag_or("layer_norm_elementwise_affine", true))
      input_error("norms without weights are not supported", config.path("layer_norm_elementwise_affine"));
    if (!config.flag_or("do_layer_norm_before", true)) {
      model.norms_of_sums = true;
      model.norms = {nullptr, kNormsBefore[0], nullptr, kNormsBefore[2]};
    }
    model.qkv_bias = model.output_bias = model.mlp_bias = config.flag_or("enable_bias", true);
    model.learned_positions = model.max_positions + 2;
  }
  if (family.type == "qwen") {
    // The file's intermediate_size is that of gate and up together.
    model.intermediate_size /= 2;
    model.output_bias = !config.flag_or("no_bias", true);
  }
}

/// The windows by the family's fields, before layer_types is applied.
std::vector<std::int32_t> windows_of_family(const JsonObject& config, const Family& family,
                                            std::uint32_t n_layers, std::int32_t window) {
  std::uint64_t first = n_layers;
  if (family.sliding == Family::Sliding::always) first = 0;
  if (family.sliding == Family::Sliding::picked)
    first = config.integer_or("max_window_layers", 0, kMaxLayers, kFirstWindowLayer);
  std::uint64_t pattern = 0;
  if (family.sliding == Family::Sliding::patterned && window > 0 && !config.has("layer_types")) {
    first = 0;
    pattern = named(config, {"sliding_window_pattern", "layer_switch"}, kMaxLayers, family.pattern);
    constexpr const char* kOrder = "order_of_interleaved_layers";
    if (config.text_or(kOrder, "local_attn_first") != "local_attn_first")
      input_error("only windows first are supported", config.path(kOrder));
  }
  std::vector<std::int32_t> windows(n_layers, -1);
  for (std::uint64_t layer = first; layer < n_layers && window > 0; ++layer)
    if (pattern == 0 || (layer + 1) % pattern != 0) windows[layer] = window;
  return windows;
}

/// The window of sliding layers; 0 if there is none.
std::int32_t read_window(const JsonObject& config, const Family& family) {
  constexpr const char* kField = "sliding_window";
  if (family.sliding == Family::Sliding::never) {
    if (config.flag_or("use_sliding_window", true))
      refuse_if_present(config, kField, "a model of this type has no sliding window");
    return 0;
  }
  if (family.sliding == Family::Sliding::picked && !config.flag_or("use_sliding_window", false)) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t window = number_or_none(config, kField, kMost, family.window, 0);
  // Gemma 2's files say it twice; its class reads one of them.
  constexpr const char* kAgain = "sliding_window_size";
  if (config.integer_or(kAgain, 0, kMost, window) != window)
    input_error("differs from sliding_window", config.path(kAgain));
  return static_cast<std::int32_t>(window);
}

/// The layers that no_rope_layers or no_rope_layer_interval exempt from rotation.
std::vector<bool> unrotated_layers(const JsonObject& config, const Family& family, std::uint32_t n_layers) {
  const std::uint64_t interval = config.integer_or("no_rope_layer_interval", 1, kMaxLayers, 4);
  constexpr const char* kListed = "no_rope_layers";
  const json::array listed = config.has(kListed) ? config.array(kListed) : json::array();
  const bool by_interval = listed.empty() && (!config.has(kListed) || family.type == "llama4_text");
  if (!by_interval && listed.size() < n_layers)
    input_error("lists " + std::to_string(listed.size()) + " layers of " + std::to_string(n_layers),
                config.path(kListed));
  std::vector<bool> exempt(n_layers);
  for (std::uint32_t layer = 0; layer < n_layers; ++layer)
    exempt[layer] = by_interval ? (layer + 1) % interval == 0
                                : json_integer(listed[layer], config.path(kListed), 0, 1) == 0;
  return exempt;
}

/// The chunk of each layer, -1 of those that see everything.
std::vector<std::int32_t> read_chunks(const JsonObject& config, const Family& family,
                                      std::uint32_t n_layers) {
  constexpr const char* kField = "attention_chunk_size";
  const std::vector<bool> whole = unrotated_layers(config, family, n_layers);
  const json::array types = config.has("layer_types") ? config.array("layer_types") : json::array();
  if (!types.empty() && types.size() != n_layers)
    input_error("lists " + std::to_string(types.size()) + " layers of " + std::to_string(n_layers),
                config.path("layer_types"));
  std::vector<std::int32_t> chunks(n_layers, -1);
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    const bool chunked = types.empty() ? !whole[layer] : types[layer] == "chunked_attention";
    if (!chunked && !types.empty() && types[layer] != "full_attention")
      input_error("expected full_attention or chunked_attention for layer " + std::to_string(layer),
                  config.path("layer_types"));
    if (!chunked) continue;
    chunks[layer] = static_cast<std::int32_t>(
        number_or_none(config, kField, std::numeric_limits<std::int32_t>::max(), family.window, 0));
    if (chunks[layer] == 0) input_error("is required, as layers attend within chunks", config.path(kField));
  }
  return chunks;
}

/// The window of each layer. layer_types selects the sliding layers if the family allows it, and must agree
/// with the family's fields otherwise.
std::vector<std::int32_t> read_windows(const JsonObject& config, const Family& family,
                                       std::uint32_t n_layers) {
  if (family.sliding == Family::Sliding::chunks) return read_chunks(config, family, n_layers);
  const bool chosen =
      family.sliding == Family::Sliding::picked || family.sliding == Family::Sliding::patterned;
  const std::int32_t window = read_window(config, family);
  std::vector<std::int32_t> windows = windows_of_family(config, family, n_layers, window);
  if (!config.has("layer_types") || family.memory == Family::Memory::delta) return windows;
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
    if (chosen && window > 0) windows[layer] = slides ? window : -1;
    if (slides != (windows[layer] > 0)) {
      input_error(
          "layer " + std::to_string(layer) + " is said to " +
              (slides ? "slide, but there is no window in use" : "see everything, but a window is set"),
          where);
    }
  }
  return windows;
}

/// Which layers rotate, and by what.
void read_rotations(const JsonObject& config, const Family& family, ModelConfig& model) {
  using Rotated = Family::Rotated;
  if (family.rotated == Rotated::never) {
    model.rope = RopeConfig{.type = "none", .theta = 0};
    return;
  }
  RopeContext context{model.model_type,    model.latent.rank > 0 ? model.latent.rotated : model.head_dim,
                      model.max_positions, family.theta,
                      family.window_theta, family.partial_rotary};
  if (family.type == "gpt_neox") {
    context.theta = config.number_or("rotary_emb_base", 1, std::numeric_limits<double>::max(), family.theta);
    context.partial_rotary = config.number_or("rotary_pct", 1e-3, 1, family.partial_rotary);
  }
  if (family.type == "gpt_oss" && !config.has("rope_scaling") && !config.has("rope_parameters"))
    input_error("is required: the class's own rotation is not known", config.path("rope_parameters"));
  if (family.rotated != Rotated::apart) model.rope = read_rope(config, context);
  if (family.rotated == Rotated::all) return;
  model.apart.resize(model.n_layers);
  if (family.rotated == Rotated::listed) {
    model.apart = unrotated_layers(config, family, model.n_layers);
  } else {
    const bool windows = family.rotated != Rotated::windows ||
                         std::any_of(model.layer_window.begin(), model.layer_window.end(),
                                     [](std::int32_t window) { return window > 0; });
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
      model.apart[layer] = windows && (model.layer_window[layer] > 0) == (family.rotated == Rotated::apart);
  }
  if (family.rotated == Rotated::apart) {
    auto [of_full, of_windows] = read_two_ropes(config, context);
    model.rope = std::move(of_full);
    model.other_rope = std::move(of_windows);
  } else {
    model.other_rope = RopeConfig{.type = "none", .rotary_dim = model.rope.rotary_dim};
  }
  // Layers that all rotate alike have one rotation.
  const auto others = std::count(model.apart.begin(), model.apart.end(), true);
  if (others == model.n_layers) model.rope = *model.other_rope;
  if (others == 0 || *model.other_rope == model.rope) model.other_rope.reset();
}

/// The factors of a family that has some.
void read_factors(const JsonObject& config, const Family& family, ModelConfig& model) {
  const auto factor = [&](const char* field) {
    return static_cast<float>(config.number_or(field, 1e-6, 1e6, 1));
  };
  if (family.scaled_embedding) model.embedding_scale = std::sqrt(static_cast<float>(model.hidden_size));
  if (family.multipliers) {
    model.embedding_scale = factor("embedding_multiplier");
    model.residual_scale = factor("residual_multiplier");
    model.logit_divisor = factor("logits_scaling");
    model.attention_scale = config.number_or("attention_multiplier", 1e-6, 1e6, 1);
  }
  if (family.sliding == Family::Sliding::chunks && config.flag_or("attn_temperature_tuning", true)) {
    model.temperature_floor = config.number_or("floor_scale", 1, 1e9, 8192);
    model.temperature_scale = config.number_or("attn_scale", 0, 1e6, 0.1);
  }
  if (family.logit_scale != 0)
    model.logit_divisor =
        static_cast<float>(1 / config.number_or("logit_scale", 1e-6, 1e6, family.logit_scale));
  if (model.latent.rank > 0)
    model.attention_scale = model.rope.all_temperature * model.rope.all_temperature /
                            std::sqrt(static_cast<double>(model.latent.plain + model.latent.rotated));
  const auto cap = [&](const char* field, double absent) {
    if (absent < 0 || (config.raw().contains(field) && !config.has(field))) return 0.0;
    return config.number_or(field, 1e-3, 1e6, absent);
  };
  model.attention_cap = cap("attn_logit_softcapping", family.attention_cap);
  model.logit_cap = cap("final_logit_softcapping", family.logit_cap);
  if (family.query_scalar != 0) {
    const double divisor = config.number_or("query_pre_attn_scalar", 1e-6, 1e6, family.query_scalar);
    if (divisor != model.head_dim) model.attention_scale = 1 / std::sqrt(divisor);
  }
}

/// Reads one model: the file, or its text_config.
ModelConfig read_model(JsonObject config, Purpose purpose) {
  std::set<std::string> asked;
  config.note_asked(asked);
  ModelConfig model;
  const Family& family = checked_family(config, purpose);
  model.model_type = family.type;
  model.architecture = first_architecture(config);
  if (config.has("auto_map") && !names_known_classes(config, family))
    refuse_if_present(config, "auto_map",
                      "the checkpoint brings its own model code, which kvsim does not know",
                      purpose == Purpose::run ? kElsewhere : "");
  read_shape(config, family, model);
  read_parts(config, family, model);
  read_layer_kinds(config, family, model);
  model.layer_window = read_windows(config, family, model.n_layers);
  model.chunked = family.sliding == Family::Sliding::chunks;
  if (purpose == Purpose::sizes) {
    model.stored_weights = read_stored_weights(config);
  } else {
    model.stored_weights = read_runnable_weights(config);
    refuse_to_run(config, family, model);
    model.activation = read_activation(config, family);
    model.norm_eps = family.type == "opt"
                         ? family.norm_eps  // whatever a file says
                         : config.number_or(model.centred_norms ? "layer_norm_eps" : "rms_norm_eps", 0, 1,
                                            family.norm_eps);
    read_rotations(config, family, model);
    read_factors(config, family, model);
    model.eos = token_ids(config, "eos_token_id", model.vocab_size);
  }
  refuse_foreign_parts(config, asked, purpose);
  return model;
}

ModelConfig read(const std::string& text, const std::string& path, Purpose purpose) {
  const json::value document = parse_config_text(text, path);
  const JsonObject config(document, path);
  ModelConfig model;
  // Llama 4's files have a tower of images beside what is run.
  const bool inner = purpose == Purpose::sizes || config.text_or("model_type", "") == "llama4";
  if (inner && config.has("text_config")) {
    model = read_model(config.object("text_config"), purpose);
    if (purpose == Purpose::run) {
      model.stored_weights = read_runnable_weights(config);
      model.architecture = first_architecture(config);
    }
    if (purpose == Purpose::sizes && config.has("quantization_config"))
      model.stored_weights = read_stored_weights(config);
    if (config.has("tie_word_embeddings"))
      model.tied_embeddings = config.flag_or("tie_word_embeddings", false);
    model.text_only = true;
  } else {
    model = read_model(config, purpose);
  }
  model.json = text;
  return model;
}

}  // namespace

ModelConfig read_model_config(const std::string& text, const std::string& path) {
  return read(text, path, Purpose::sizes);
}

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  return read(text, path, Purpose::run);
}

ModelConfig load_model_config(const std::string& model_path) {
  if (is_gguf(model_path))
    return parse_model_config(gguf_config(model_path), model_path + " as config.json:");
  const std::string path = model_path + "/config.json";
  ModelConfig model = parse_model_config(read_regular_file(path, kMaxConfigBytes), path);
  const std::string generation = model_path + "/generation_config.json";
  if (::access(generation.c_str(), F_OK) == 0) {
    const json::value document =
        parse_config_text(read_regular_file(generation, kMaxConfigBytes), generation);
    const std::vector<std::int32_t> eos =
        token_ids(JsonObject(document, generation), "eos_token_id", model.vocab_size);
    if (!eos.empty()) model.eos = eos;
  }
  return model;
}

}  // namespace kvsim::model
