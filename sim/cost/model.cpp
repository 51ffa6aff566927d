#include "sim/cost/model.hpp"

#include <sys/stat.h>

#include <initializer_list>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "sim/cost/catalogue_files.hpp"
#include "sim/cost/checked.hpp"
#include "traces/model/gguf_model.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr std::size_t kMaxConfigValues = 100'000;
constexpr std::uint64_t kMaxSize = 1ULL << 32;
constexpr const char* kParameters = "the model's parameters";

/// Defaults of transformers' configuration class of a model type for absent keys, and the parts of its
/// module.
struct Family {
  std::string_view type{};
  bool tied_embeddings = false;
  std::uint64_t kv_heads = 0;  ///< 0: as many as query heads
  std::uint64_t head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  /// Whether every layer uses the key sliding_window: not in Llama, not where only some layers slide (Gemma
  /// 2), in Qwen with use_sliding_window.
  enum class Sliding { never, always, flagged } sliding = Sliding::never;
  std::uint64_t window = 0;  ///< where all slide and the key is absent; 0: full attention
  bool gated_mlp = true, layer_norm = false;
  std::uint64_t norms_per_block = 2;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false, qk_norm = false;
  std::uint64_t extra_positions = 0;  ///< rows of a learned position embedding beyond max_position_embeddings
  bool learned_positions = false;
};

constexpr Family kFamilies[]{
    {.type = "llama"},
    {.type = "mistral", .kv_heads = 8, .sliding = Family::Sliding::always, .window = 4096},
    {.type = "qwen2", .kv_heads = 32, .sliding = Family::Sliding::flagged, .qkv_bias = true},
    {.type = "qwen3", .kv_heads = 32, .head_dim = 128, .sliding = Family::Sliding::flagged, .qk_norm = true},
    {.type = "phi3", .sliding = Family::Sliding::always},
    {.type = "gemma", .tied_embeddings = true, .kv_heads = 16, .head_dim = 256},
    {.type = "gemma2", .tied_embeddings = true, .kv_heads = 4, .head_dim = 256, .norms_per_block = 4},
    {.type = "opt",
     .tied_embeddings = true,
     .gated_mlp = false,
     .layer_norm = true,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .extra_positions = 2,
     .learned_positions = true},
    {.type = "gptj",
     .gated_mlp = false,
     .layer_norm = true,
     .norms_per_block = 1,
     .mlp_bias = true,
     .head_bias = true},
};

/// Accepts a type that is not listed only if its keys and its activation are llama's, and takes it to have
/// llama's blocks: MLPs with other activations may or may not be gated.
void check_like_llama(const JsonObject& config, const std::string& type) {
  constexpr const char* kHint =
      "Known: llama, mistral, qwen2, qwen3, phi3, gemma, gemma2, opt, gptj, and types with llama's keys and "
      "silu.";
  const std::string activation = config.text_or("hidden_act", "silu");
  if (config.has("n_embd") || (activation != "silu" && activation != "swish"))
    input_error("what blocks of model type " + quoted(type) + " are made of is not known",
                config.path("model_type"), kHint);
}

/// Types that are not listed tie their embeddings by default, as transformers' base class does.
Family family_of(const JsonObject& config) {
  const std::string type = config.text_or("model_type", "llama");
  for (const Family& family : kFamilies) {
    if (family.type == type) return family;
  }
  check_like_llama(config, type);
  return {.tied_embeddings = true};
}

/// Refuses models with parts that the formulas do not cover, because a number would be wrong.
void refuse_foreign_parts(const JsonObject& config) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (config.has(key)) input_error("mixture-of-experts models are not supported", config.path(key));
  }
  if (config.has("kv_lora_rank"))
    input_error("multi-head latent attention is not supported", config.path("kv_lora_rank"));
}

/// Reads a size under any of its names; messages show the first name.
class Sizes {
 public:
  explicit Sizes(const JsonObject& config) : config_(config) {}

  std::uint64_t required(std::initializer_list<const char*> keys) const {
    const std::uint64_t size = optional(keys, 0);
    return size != 0 ? size : config_.integer(*keys.begin(), 1, kMaxSize);
  }
  std::uint64_t optional(std::initializer_list<const char*> keys, std::uint64_t absent) const {
    for (const char* key : keys) {
      if (config_.has(key)) return config_.integer(key, 1, kMaxSize);
    }
    return absent;
  }

 private:
  const JsonObject& config_;
};

/// Null differs from absence here: null means as many as query heads, absence the class's default.
std::uint64_t read_kv_heads(const JsonObject& config, const Family& family, std::uint64_t query_heads) {
  constexpr const char* kKey = "num_key_value_heads";
  const bool absent = !config.raw().contains(kKey);
  const std::uint64_t heads =
      config.integer_or(kKey, 1, kMaxSize, absent && family.kv_heads != 0 ? family.kv_heads : query_heads);
  if (query_heads % heads != 0) {
    input_error(std::to_string(query_heads) + " query heads cannot share " + std::to_string(heads) +
                    " key-value heads evenly",
                config.path(kKey));
  }
  return heads;
}

std::uint64_t read_head_dim(const JsonObject& config, const Family& family, const Model& model) {
  if (config.has("head_dim")) return config.integer("head_dim", 1, kMaxSize);
  if (family.head_dim != 0) return family.head_dim;
  if (model.hidden % model.query_heads != 0)
    input_error("head_dim is absent, and hidden_size / num_attention_heads is not whole", config.where());
  return model.hidden / model.query_heads;
}

/// Only a window of every layer counts: models that slide in some layers are taken as full attention, as a
/// cache of one length for all layers holds it.
std::uint64_t read_window(const JsonObject& config, const Family& family, std::uint64_t layers) {
  constexpr const char* kKey = "sliding_window";
  if (family.sliding == Family::Sliding::never) return 0;
  if (family.sliding == Family::Sliding::flagged) {
    if (!config.flag_or("use_sliding_window", false)) return 0;
    if (config.integer_or("max_window_layers", 0, kMaxSize, layers) != 0) return 0;
  }
  const bool absent = !config.raw().contains(kKey);
  return config.integer_or(kKey, 1, kMaxSize, absent ? family.window : 0);
}

void read_opt(const JsonObject& config, Model& model) {
  if (config.integer_or("word_embed_proj_dim", 1, kMaxSize, model.hidden) != model.hidden) {
    input_error("an embedding narrower than the model is not supported", config.path("word_embed_proj_dim"));
  }
  if (!config.flag_or("do_layer_norm_before", true))
    input_error("a norm after each block is not supported", config.path("do_layer_norm_before"));
  model.qkv_bias = model.output_bias = model.mlp_bias = config.flag_or("enable_bias", true);
}

void read_parts(const JsonObject& config, const Family& family, Model& model) {
  model.gated_mlp = family.gated_mlp;
  model.layer_norm = family.layer_norm;
  model.norms_per_block = family.norms_per_block;
  model.qkv_bias = config.flag_or("attention_bias", family.qkv_bias);
  model.output_bias = config.flag_or("attention_bias", family.output_bias);
  model.mlp_bias = config.flag_or("mlp_bias", family.mlp_bias);
  model.head_bias = family.head_bias;
  model.qk_norm = family.qk_norm;
  model.tied_embeddings = config.flag_or("tie_word_embeddings", family.tied_embeddings);
  if (family.learned_positions)
    model.learned_positions =
        checked_sum("the position embedding", model.max_context, family.extra_positions);
}

/// Returns the parameters of one norm.
std::uint64_t norm_parameters(const Model& model) {
  return checked_product(kParameters, model.hidden, model.layer_norm ? 2 : 1);
}

std::uint64_t block_extras(const Model& model) {
  std::uint64_t total = checked_product(kParameters, norm_parameters(model), model.norms_per_block);
  if (model.qk_norm) total = checked_sum(kParameters, total, model.head_dim, model.head_dim);
  if (model.qkv_bias) {
    total = checked_sum(kParameters, total, checked_product(kParameters, model.head_dim, model.query_heads),
                        checked_product(kParameters, model.head_dim, model.kv_heads),
                        checked_product(kParameters, model.value_dim, model.kv_heads));
  }
  if (model.output_bias) total = checked_sum(kParameters, total, model.hidden);
  if (model.mlp_bias) {
    total = checked_sum(kParameters, total, model.hidden, model.ffn, model.gated_mlp ? model.ffn : 0);
  }
  return total;
}

}  // namespace

std::uint64_t Model::block_matrix_parameters() const {
  const std::uint64_t attention =
      checked_sum(kParameters, checked_product(kParameters, hidden, head_dim, query_heads),
                  checked_product(kParameters, hidden, kv_heads, head_dim),
                  checked_product(kParameters, hidden, kv_heads, value_dim),
                  checked_product(kParameters, hidden, query_heads, value_dim));
  return checked_sum(kParameters, attention, checked_product(kParameters, hidden, ffn, gated_mlp ? 3 : 2));
}

std::uint64_t Model::embedding_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, vocab, hidden, tied_embeddings ? 1 : 2),
                     checked_product(kParameters, learned_positions, hidden));
}

std::uint64_t Model::small_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_extras(*this)),
                     norm_parameters(*this), head_bias ? vocab : 0);
}

std::uint64_t Model::parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_matrix_parameters()),
                     embedding_parameters(), small_parameters());
}

std::uint64_t Model::streamed_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_matrix_parameters()),
                     checked_product(kParameters, vocab, hidden));
}

Model device_share(const Model& model, std::uint64_t tensor_parallel) {
  if (tensor_parallel == 0) usage_error("tensor parallelism needs at least one device", "tensor_parallel");
  if (model.query_heads % tensor_parallel != 0) {
    usage_error(std::to_string(model.query_heads) + " query heads cannot be split over " +
                    std::to_string(tensor_parallel) + " devices",
                "tensor_parallel", "Use a divisor of the number of heads.");
  }
  Model share = model;
  share.query_heads = model.query_heads / tensor_parallel;
  share.kv_heads = local_kv_heads(model.kv_heads, tensor_parallel);
  share.ffn = ceil_divided(model.ffn, tensor_parallel);
  share.vocab = ceil_divided(model.vocab, tensor_parallel);
  return share;
}

std::uint64_t local_kv_heads(std::uint64_t stored_kv_heads, std::uint64_t tensor_parallel) {
  return std::max<std::uint64_t>(1, ceil_divided(stored_kv_heads, tensor_parallel));
}

Model parse_model(std::string_view json, const std::string& where) {
  const boost::json::value document = parse_strict_json(json, where, kMaxConfigValues);
  const JsonObject config(document, where);
  refuse_foreign_parts(config);
  const Family family = family_of(config);
  const Sizes sizes(config);
  Model model;
  model.name = config.text_or("kvsim_name", where);
  model.source = config.text_or("kvsim_source", where);
  model.layers = sizes.required({"num_hidden_layers", "n_layer"});
  model.hidden = sizes.required({"hidden_size", "n_embd"});
  model.query_heads = sizes.required({"num_attention_heads", "n_head"});
  model.vocab = sizes.required({"vocab_size"});
  model.max_context = sizes.optional({"max_position_embeddings", "n_positions"}, 0);
  model.ffn = config.has("n_embd") ? sizes.optional({"n_inner"}, 4 * model.hidden)
                                   : sizes.required({"intermediate_size", "ffn_dim"});
  model.kv_heads = read_kv_heads(config, family, model.query_heads);
  model.head_dim = model.value_dim = read_head_dim(config, family, model);
  model.window = read_window(config, family, model.layers);
  read_parts(config, family, model);
  if (family.type == "opt") read_opt(config, model);
  try {
    model.parameters();
    checked_product("the cache of a token", 4, model.layers, model.query_heads, model.head_dim);
  } catch (const Error& error) {
    input_error(error.what(), where);
  }
  return model;
}

const std::vector<Model>& known_models() {
  static const std::vector<Model> kModels = [] {
    std::vector<Model> models;
    for (const CatalogueFile& file : model_files()) {
      models.push_back(parse_model(file.text, std::string(file.name)));
    }
    return models;
  }();
  return kModels;
}

Model find_model(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (const Model& model : known_models()) {
    if (edit_distance(model.name, name_or_path) == 0) return model;
    names.push_back(model.name);
  }
  struct stat status {};
  if (::stat(name_or_path.c_str(), &status) != 0) {
    usage_error("unknown model " + quoted(name_or_path), {},
                "Give a name, a config.json, a directory that holds one, or a GGUF file. " +
                    suggestion(name_or_path, names));
  }
  if (model::is_gguf(name_or_path)) return parse_model(model::gguf_config(name_or_path), name_or_path);
  const std::string path = S_ISDIR(status.st_mode) ? name_or_path + "/config.json" : name_or_path;
  return parse_model(read_file(path, kMaxConfigBytes), path);
}

}  // namespace kvsim::cost
