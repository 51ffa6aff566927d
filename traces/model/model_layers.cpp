#include "traces/model/model_layers.hpp"

#include <algorithm>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMostExperts = 4096, kMostRank = 1 << 16, kMostWidth = 1ULL << 20, kMostKernel = 64;
constexpr std::uint64_t kMostLayers = 1024;
using Mlp = LayerKind::Mlp;

std::uint32_t small_number(const JsonObject& config, const char* field, std::uint64_t high,
                           std::uint64_t absent) {
  return static_cast<std::uint32_t>(config.integer_or(field, 1, high, absent));
}

/// Whether the list of layers' numbers has this one.
bool lists(const JsonObject& config, const char* field, std::uint64_t layer) {
  if (!config.has(field)) return false;
  const json::array& numbers = config.array(field);
  return std::any_of(numbers.begin(), numbers.end(), [&](const json::value& number) {
    return json_integer(number, config.path(field), 0, kMostLayers) == layer;
  });
}

bool at_period(const JsonObject& config, const std::string& what, std::uint64_t layer, std::uint64_t period,
               std::uint64_t offset) {
  return layer % config.integer_or(what + "_layer_period", 1, kMostLayers, period) ==
         config.integer_or(what + "_layer_offset", 0, kMostLayers, offset);
}

/// A field of `what` that must be absent or false, because it adds parameters that are not counted.
void refuse_flag(const JsonObject& config, const char* field) {
  if (config.flag_or(field, false)) input_error("is not supported", config.path(field));
}

/// How DeepSeek's routers choose.
void read_routing(const JsonObject& config, const Family& family, Experts& experts) {
  const bool grouped_by_method = family.type == "deepseek_v2";
  const std::string scores = experts.corrected ? "sigmoid" : "softmax";
  if (const std::string given = config.text_or("scoring_func", scores); given != scores)
    input_error("expected " + scores + ", not " + in_quotes(given), config.path("scoring_func"));
  const std::string method = config.text_or("topk_method", grouped_by_method ? "greedy" : "noaux_tc");
  if (method != (grouped_by_method ? "group_limited_greedy" : "noaux_tc") &&
      !(grouped_by_method && method == "greedy"))
    input_error("does not know " + in_quotes(method), config.path("topk_method"));
  experts.groups = static_cast<std::uint32_t>(config.integer_or("n_group", 1, experts.count, experts.groups));
  experts.used_groups = static_cast<std::uint32_t>(
      config.integer_or("topk_group", 1, std::max(experts.groups, 1U), experts.used_groups));
  if (grouped_by_method && method == "greedy") experts.groups = 0;
  if (experts.groups > 0 && experts.count % experts.groups != 0)
    input_error(
        std::to_string(experts.count) + " experts do not make " + std::to_string(experts.groups) + " groups",
        config.path("n_group"));
  experts.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1e-6, 1e6, experts.scale));
  // The class of V2 knows the field and computes the same with it.
  if (grouped_by_method) experts.normalised = false;
}

void read_experts(const JsonObject& config, const Family& family, ModelConfig& model) {
  if (family.experts.count == 0) return;
  Experts& experts = model.experts = family.experts;
  for (const char* field : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (config.has(field)) experts.count = small_number(config, field, kMostExperts, 0);
  constexpr const char* kUsed = "num_experts_per_tok";
  if (config.has("experts_per_token") && !config.has(kUsed))
    experts.used = small_number(config, "experts_per_token", experts.count, 0);
  else
    experts.used = experts.used == 0 ? static_cast<std::uint32_t>(config.integer(kUsed, 1, experts.count))
                                     : small_number(config, kUsed, experts.count, experts.used);
  // Jamba with one expert has dense layers.
  if (experts.used > experts.count && family.sparse != Family::Sparse::periodic)
    input_error(std::to_string(experts.used) + " of " + std::to_string(experts.count) + " experts are used",
                config.path(kUsed));
  experts.width = experts.width == 0
                      ? model.intermediate_size
                      : small_number(config, "moe_intermediate_size", kMostWidth, experts.width);
  if (!experts.normalised)
    experts.normalised =
        config.flag_or("norm_topk_prob", family.memory == Family::Memory::delta || experts.corrected);
  if (family.latent.rank != 0) read_routing(config, family, experts);
  if (experts.limit != 0) {
    experts.gain = static_cast<float>(config.number_or("swiglu_alpha", 1e-3, 1e3, experts.gain));
    experts.limit = static_cast<float>(config.number_or("swiglu_limit", 1e-3, 1e6, experts.limit));
  }
  if (family.shared == Family::Shared::alike) {
    experts.shared_width = experts.width;
    model.intermediate_size = small_number(config, "intermediate_size_mlp", kMostWidth, 16384);
  } else if (family.shared == Family::Shared::times) {
    experts.shared_width =
        experts.width * config.integer_or("n_shared_experts", 0, kMostExperts, experts.shared_width);
  } else if (family.memory == Family::Memory::nemotron) {
    experts.shared_width =
        config.integer_or("n_shared_experts", 0, kMostExperts, 1) *
        config.integer_or("moe_shared_expert_intermediate_size", 1, kMostWidth, experts.shared_width);
    if (config.integer_or("moe_latent_size", 0, kMostWidth, 0) != 0)
      input_error("experts that work on a narrower vector are not supported", config.path("moe_latent_size"));
  } else if (family.shared == Family::Shared::own) {
    experts.shared_width =
        config.integer_or("shared_expert_intermediate_size", 0, kMostWidth, experts.shared_width);
  }
}

bool has_experts(const JsonObject& config, const Family& family, const Experts& experts,
                 std::uint64_t layer) {
  if (experts.count == 0) return false;
  switch (family.sparse) {
    case Family::Sparse::all:
      return true;
    case Family::Sparse::behind:
      if (config.has("mlp_layer_types")) {
        const json::array& types = config.array("mlp_layer_types");
        if (layer >= types.size() || (types[layer] != "dense" && types[layer] != "sparse"))
          input_error("expected dense or sparse for layer " + std::to_string(layer),
                      config.path("mlp_layer_types"));
        return types[layer] == "sparse";
      }
      return layer >= config.integer_or("first_k_dense_replace", 0, kMostLayers, family.dense) &&
             layer % config.integer_or("moe_layer_freq", 1, kMostLayers, 1) == 0;
    case Family::Sparse::stepped:
      return !lists(config, "mlp_only_layers", layer) &&
             (layer + 1) % config.integer_or("decoder_sparse_step", 1, kMostLayers, 1) == 0;
    case Family::Sparse::listed: {
      const std::uint64_t step = config.integer_or("interleave_moe_layer_step", 1, kMostLayers, 1);
      return config.has("moe_layers") ? lists(config, "moe_layers", layer) : (layer + 1) % step == 0;
    }
    case Family::Sparse::periodic:
      return experts.count > 1 && at_period(config, "expert", layer, 2, 1);
  }
  return false;
}

/// Gated delta rule (Yang et al. 2024): a matrix of each value head.
Recurrence read_delta(const JsonObject& config, const ModelConfig& model) {
  const auto of = [&](const char* field, std::uint64_t absent) {
    return config.integer_or(field, 1, kMostWidth, absent);
  };
  const std::uint64_t key_dim = of("linear_key_head_dim", 128), value_dim = of("linear_value_head_dim", 128);
  const std::uint64_t values = of("linear_num_value_heads", 32), kernel = of("linear_conv_kernel_dim", 4);
  const std::uint64_t key = of("linear_num_key_heads", 16) * key_dim, value = values * value_dim;
  // Queries, keys and values pass a convolution; beside them a gate of the output, and two numbers of each
  // head. Parameters of a head: a step, a decay; a norm over a head's output.
  const std::uint64_t convolved = 2 * key + value;
  return {.matrices = {{model.hidden_size, convolved + value + 2 * values}, {value, model.hidden_size}},
          .small = convolved * kernel + 2 * values + value_dim,
          .state = values * key_dim * value_dim,
          .convolution = convolved * (kernel - 1)};
}

/// Mamba 2 (Dao and Gu 2024), under the names of two groups of classes.
Recurrence read_mamba2(const JsonObject& config, const Family& family, const ModelConfig& model) {
  const bool nemotron = family.memory == Family::Memory::nemotron;
  const auto of = [&](const char* field, const char* field_of_nemotron, std::uint64_t absent) {
    return config.integer_or(nemotron ? field_of_nemotron : field, 1, kMostWidth, absent);
  };
  for (const char* field : {"mamba_proj_bias", "projectors_bias", "use_bias"}) refuse_flag(config, field);
  const std::uint64_t heads = of("mamba_n_heads", "mamba_num_heads", 128);
  const std::uint64_t states = of("mamba_d_state", "ssm_state_size", nemotron ? 128 : 256);
  const std::uint64_t groups = of("mamba_n_groups", "n_groups", nemotron ? 8 : 1);
  const std::uint64_t kernel = of("mamba_d_conv", "conv_kernel", 4);
  const std::uint64_t expanded =
      config.integer_or(nemotron ? "expand" : "mamba_expand", 1, 64, 2) * model.hidden_size;
  std::uint64_t inner = expanded;
  if (nemotron) inner = heads * config.integer_or("mamba_head_dim", 1, kMostWidth, 64);
  if (family.memory == Family::Memory::falcon)
    inner = config.integer_or("mamba_d_ssm", 1, kMostWidth,
                              config.raw().contains("mamba_d_ssm") ? expanded : 1024);
  const json::value* head = config.find("mamba_d_head");
  if (inner % heads != 0 ||
      (head != nullptr && !head->is_string() &&
       json_integer(*head, config.path("mamba_d_head"), 1, kMostWidth) * heads != inner))
    input_error(std::to_string(inner) + " channels are not " + std::to_string(heads) + " heads",
                config.path("mamba_d_head"));
  const std::uint64_t convolved = inner + 2 * groups * states;
  const bool bias = config.flag_or(nemotron ? "use_conv_bias" : "mamba_conv_bias", true);
  const bool norm = family.memory != Family::Memory::falcon || config.flag_or("mamba_rms_norm", false);
  return {.matrices = {{model.hidden_size, inner + convolved + heads}, {inner, model.hidden_size}},
          .small = convolved * (kernel + (bias ? 1 : 0)) + 3 * heads + (norm ? inner : 0),
          .state = inner * states,
          .convolution = convolved * (kernel - 1)};
}

/// Mamba (Gu and Dao 2023) with the norms of Jamba.
Recurrence read_mamba1(const JsonObject& config, const ModelConfig& model) {
  refuse_flag(config, "mamba_proj_bias");
  const std::uint64_t inner = config.integer_or("mamba_expand", 1, 64, 2) * model.hidden_size;
  const std::uint64_t states = config.integer_or("mamba_d_state", 1, kMostWidth, 16);
  const std::uint64_t kernel = config.integer_or("mamba_d_conv", 1, kMostKernel, 4);
  const json::value* given = config.find("mamba_dt_rank");
  const std::uint64_t rank = given == nullptr || given->is_string()
                                 ? (model.hidden_size + 15) / 16
                                 : json_integer(*given, config.path("mamba_dt_rank"), 1, kMostRank);
  const std::uint64_t bias = config.flag_or("mamba_conv_bias", true) ? inner : 0;
  return {.matrices = {{model.hidden_size, 2 * inner},
                       {inner, rank + 2 * states},
                       {rank, inner},
                       {inner, model.hidden_size}},
          .small = inner * (kernel + states + 2) + bias + rank + 2 * states,
          .state = inner * states,
          .convolution = inner * (kernel - 1)};
}

/// Gated retention (Sun et al. 2024): a matrix of each head, a decay of each, a gate of the output; the
/// authors keep the state in 16 bits.
Recurrence read_retention(const JsonObject& config, const ModelConfig& model) {
  const std::uint64_t heads = config.integer_or("num_self_attention_heads", 1, kMostWidth, model.n_heads);
  const std::uint64_t hidden = model.hidden_size;
  if (hidden % heads != 0)
    input_error(std::to_string(hidden) + " channels are not " + std::to_string(heads) + " heads",
                config.path("num_self_attention_heads"));
  return {.matrices = {{hidden, 4 * hidden + heads}, {hidden, hidden}},
          .state = hidden * (hidden / heads),
          .state_bytes = 2};
}

Recurrence read_recurrence(const JsonObject& config, const Family& family, const ModelConfig& model) {
  if (family.memory == Family::Memory::yoco) return read_retention(config, model);
  Recurrence recurrence = family.memory == Family::Memory::delta   ? read_delta(config, model)
                          : family.memory == Family::Memory::jamba ? read_mamba1(config, model)
                                                                   : read_mamba2(config, family, model);
  for (const char* field : {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"})
    if (const std::string type = config.text_or(field, "float32"); type == "bfloat16" || type == "float16")
      recurrence.state_bytes = 2;
    else if (type != "float32")
      input_error("expected float32, bfloat16 or float16, not " + in_quotes(type), config.path(field));
  return recurrence;
}

/// The kind by the name of a layer of transformers, or its letter in a pattern.
LayerKind named_kind(std::string_view name, const std::string& where) {
  if (name == "full_attention" || name == "attention" || name == "*") return {1, true, false, Mlp::none};
  if (name == "linear_attention" || name == "mamba" || name == "M") return {1, false, true, Mlp::none};
  if (name == "moe" || name == "E") return {1, false, false, Mlp::experts};
  if (name == "mlp" || name == "-") return {1, false, false, Mlp::dense};
  input_error("does not know layers of type " + in_quotes(std::string(name)), where);
}

std::string_view name_of_layer(const JsonObject& config, const char* field, std::uint64_t layer,
                               std::uint64_t layers) {
  const json::array& names = config.array(field);
  if (names.size() != layers || !names[layer].is_string())
    input_error("expected the types of " + std::to_string(layers) + " layers", config.path(field));
  return {names[layer].get_string().data(), names[layer].get_string().size()};
}

LayerKind kind_of(const JsonObject& config, const Family& family, const ModelConfig& model,
                  std::uint64_t layer) {
  const std::uint64_t layers = model.n_layers;
  LayerKind kind{.layers = 1,
                 .mlp = has_experts(config, family, model.experts, layer) ? Mlp::experts : Mlp::dense};
  switch (family.memory) {
    case Family::Memory::none:
      return kind;
    case Family::Memory::delta:
      if (config.has("layer_types"))
        kind.attends =
            named_kind(name_of_layer(config, "layer_types", layer, layers), config.path("layer_types"))
                .attends;
      else
        kind.attends = (layer + 1) % config.integer_or("full_attention_interval", 1, kMostLayers, 4) == 0;
      break;
    case Family::Memory::bamba:
      kind.attends = lists(config, "attn_layer_indices", layer);
      break;
    case Family::Memory::falcon:
      kind.remembers = true;
      return kind;
    case Family::Memory::jamba:
      kind.attends = at_period(config, "attn", layer, 8, 4);
      break;
    case Family::Memory::yoco:
      kind.attends = kind.crosses = layer >= layers / 2;
      break;
    case Family::Memory::nemotron: {
      constexpr const char* kTypes = "layers_block_type";
      constexpr const char* kPattern = "hybrid_override_pattern";
      if (config.has(kTypes))
        return named_kind(name_of_layer(config, kTypes, layer, layers), config.path(kTypes));
      const std::string pattern = config.text(kPattern);
      if (pattern.size() != layers)
        input_error(
            "has " + std::to_string(pattern.size()) + " letters for " + std::to_string(layers) + " layers",
            config.path(kPattern));
      return named_kind(std::string_view(pattern).substr(layer, 1), config.path(kPattern));
    }
  }
  kind.remembers = !kind.attends;
  return kind;
}

}  // namespace

void read_latent(const JsonObject& config, const Family& family, ModelConfig& model) {
  const auto of = [&](const char* field, std::uint32_t absent) {
    return small_number(config, field, kMostRank, absent);
  };
  Latent& latent = model.latent = family.latent;
  latent.rank = of("kv_lora_rank", latent.rank);
  // null says that queries are not compressed, absence leaves it to the class.
  latent.query_rank = of("q_lora_rank", config.raw().contains("q_lora_rank") ? 0 : latent.query_rank);
  latent.plain = of("qk_nope_head_dim", latent.plain);
  latent.rotated = of("qk_rope_head_dim", latent.rotated);
  latent.value = of("v_head_dim", latent.value);
  for (const char* field : {"num_key_value_heads", "head_dim", "qk_head_dim"}) (void)config.has(field);
  model.n_kv_heads = 1;
  model.head_dim = latent.rank + latent.rotated;
}

void read_layer_kinds(const JsonObject& config, const Family& family, ModelConfig& model) {
  read_experts(config, family, model);
  if (family.memory != Family::Memory::none) model.recurrence = read_recurrence(config, family, model);
  for (std::uint64_t layer = 0; layer < model.n_layers; ++layer) {
    const LayerKind kind = kind_of(config, family, model, layer);
    if (!model.kinds.empty() && model.kinds.back().alike(kind))
      ++model.kinds.back().layers;
    else
      model.kinds.push_back(kind);
  }
}

}  // namespace kvsim::model
