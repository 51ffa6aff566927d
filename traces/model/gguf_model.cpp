#include "traces/model/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/gguf_blocks.hpp"
#include "traces/model/model_families.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kRopeDivisors = "rope_freqs.weight";
constexpr const char* kShortDivisors = "rope_factors_short.weight";
constexpr const char* kLongDivisors = "rope_factors_long.weight";
constexpr std::uint64_t kAnyPosition = 1ULL << 24;  // more than any run of kvsim reaches

/// An architecture, and the family of families() that it is.
struct Architecture {
  std::string_view name, type;
  bool interleaved = false;  ///< rows of q and k are those of interleaved heads, the family's are not
};
constexpr Architecture kArchitectures[]{
    {"chatglm", "glm"},           {"cohere2", "cohere2"},    {"command-r", "cohere"},
    {"deepseek2", "deepseek_v3"}, {"exaone4", "exaone4"},    {"gemma", "gemma"},
    {"gemma2", "gemma2"},         {"gemma3", "gemma3_text"}, {"glm4", "glm4"},
    {"gpt-oss", "gpt_oss"},       {"gptneox", "gpt_neox"},   {"granite", "granite", true},
    {"llama", "llama", true},     {"llama4", "llama4_text"}, {"olmo2", "olmo2"},
    {"olmoe", "olmoe"},           {"phi3", "phi3"},          {"qwen2", "qwen2"},
    {"qwen2moe", "qwen2_moe"},    {"qwen3", "qwen3"},        {"qwen3moe", "qwen3_moe"},
    {"smollm3", "smollm3", true}};

/// The file's architecture. Of two families that share one, the file's keys say which it is.
Architecture checked_architecture(const Gguf& file) {
  constexpr std::uint64_t kSigmoid = 2;
  const std::string name(file.text(kArchitecture));
  std::vector<std::string> names;
  for (Architecture one : kArchitectures) {
    if (one.name == name) {
      if (name == "llama" && file.integer_or("llama.expert_count", 0) > 0) one.type = "mixtral";
      if (name == "deepseek2" && file.integer_or("deepseek2.expert_gating_func", 1) != kSigmoid)
        one.type = "deepseek_v2";
      if (name == "olmo2" && file.integer_or("olmo2.attention.sliding_window", 0) > 0) one.type = "olmo3";
      return one;
    }
    names.emplace_back(one.name);
  }
  const std::string near = suggestion(name, names);
  input_error("architecture " + in_quotes(name) + " is not supported", file.where(kArchitecture),
              "Supported: " + joined(names) + "." + (near.starts_with("Did") ? " " + near : ""));
}

const Family& family_of(const Architecture& architecture) {
  const std::span<const Family> all = families();
  return *std::find_if(all.begin(), all.end(),
                       [&](const Family& family) { return family.type == architecture.type; });
}

/// Throws Error(input) for a file that is no whole model.
void check_kind(const Gguf& file) {
  const std::string_view type = file.text_or("general.type", "model");
  if (type != "model") input_error("is " + in_quotes(type) + ", not a model", file.where("general.type"));
  if (file.integer_or("split.count", 1) > 1)
    input_error("is one part of a model in several files", file.where("split.count"),
                "Join them: llama-gguf-split --merge FIRST OUTPUT.");
  constexpr const char* kBlocks = "general.quantization_version";
  if (file.integer_or(kBlocks, 2) != 2)
    input_error("only blocks of version 2 are known", file.where(kBlocks));
}

/// The keys under the architecture's name; knows which were asked for.
class Fields {
 public:
  Fields(const Gguf& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::uint64_t integer(std::string_view name) { return file_.integer(take(name)); }
  std::uint64_t integer_or(std::string_view name, std::uint64_t absent) {
    return file_.integer_or(take(name), absent);
  }
  double number(std::string_view name) { return file_.number(take(name)); }
  double number_or(std::string_view name, double absent) { return file_.number_or(take(name), absent); }
  std::string_view text_or(std::string_view name, std::string_view absent) {
    return file_.text_or(take(name), absent);
  }
  bool flag_or(std::string_view name, bool absent) { return file_.flag_or(take(name), absent); }
  std::vector<bool> flags(std::string_view name) { return file_.flags(take(name)); }
  bool has(std::string_view name) { return file_.has(take(name)); }
  void require(bool holds, std::string_view name, const std::string& what) const {
    if (!holds) input_error(what, file_.where(prefix_ + std::string(name)));
  }

  void check_rest() const {
    for (const std::string& key : file_.keys()) {
      if (key.starts_with(prefix_) && !taken_.contains(key)) {
        input_error("may change what the model computes, and kvsim does not know it", file_.where(key),
                    "Capture this model with another tool and convert its trace.");
      }
    }
  }

 private:
  std::string take(std::string_view name) { return *taken_.insert(prefix_ + std::string(name)).first; }

  const Gguf& file_;
  std::string prefix_;
  std::set<std::string> taken_;
};

/// A tensor of F32 as numbers for config.json.
json::array divisors(const Gguf& file, const char* name) {
  const GgufTensor& tensor = file.tensor(name);
  if (tensor.type->name != "F32")
    input_error("is not of type F32", file.path() + " tensor " + in_quotes(name));
  json::array values;
  for (std::size_t at = 0; at < tensor.data.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.data.data() + at, sizeof value);
    values.push_back(std::isfinite(value) ? value : 0.0);  // refused as 0 is
  }
  return values;
}

void read_scaling(const Gguf& file, Fields& fields, json::object& config) {
  const bool has_factor = fields.has("rope.scaling.factor");
  const std::string type(fields.text_or("rope.scaling.type", has_factor ? "linear" : "none"));
  fields.has("rope.scaling.finetuned");  // says how the model was trained, not how it computes
  const std::uint64_t original =
      fields.integer_or("rope.scaling.original_context_length", fields.integer("context_length"));
  json::object scaling;
  if (file.tensors().contains(kShortDivisors) || file.tensors().contains(kLongDivisors)) {
    scaling = {{"rope_type", "longrope"},
               {"short_factor", divisors(file, kShortDivisors)},
               {"long_factor", divisors(file, kLongDivisors)},
               {"original_max_position_embeddings", original},
               {"attention_factor", fields.number_or("rope.scaling.attn_factor", 1)}};
    fields.require(type == "none" || type == "longrope", "rope.scaling.type", "rope is scaled in two ways");
    if (has_factor) fields.number("rope.scaling.factor");  // of the context, which attn_factor follows from
  } else if (file.tensors().contains(kRopeDivisors)) {
    // What Llama 3 does to its frequencies, worked out when the file was written.
    scaling = {{"rope_type", "longrope"},
               {"short_factor", divisors(file, kRopeDivisors)},
               {"long_factor", divisors(file, kRopeDivisors)},
               {"original_max_position_embeddings", kAnyPosition},
               {"attention_factor", 1}};
    fields.require(type == "none", "rope.scaling.type", "rope is scaled in two ways");
  } else if (type != "none") {
    scaling = {{"rope_type", type},
               {"factor", fields.number("rope.scaling.factor")},
               {"original_max_position_embeddings", original}};
    if (type == "yarn") {
      scaling["beta_fast"] = fields.number_or("rope.scaling.yarn_beta_fast", 32);
      scaling["beta_slow"] = fields.number_or("rope.scaling.yarn_beta_slow", 1);
      // The factor on cosines and sines, which llama.cpp works out, whatever the file says.
      constexpr const char* kTemperature = "rope.scaling.yarn_attn_factor";
      const double follows = 1 + 0.1 * std::log(std::max(1.0, fields.number("rope.scaling.factor")));
      fields.require(std::abs(fields.number_or(kTemperature, follows) - follows) <= 1e-6, kTemperature,
                     "is not what follows from rope.scaling.factor");
    }
    fields.require(type == "linear" || type == "yarn", "rope.scaling.type",
                   in_quotes(type) + " is not supported");
  }
  if (!scaling.empty()) config["rope_scaling"] = std::move(scaling);
}

void read_heads(Fields& fields, json::object& config) {
  const std::uint64_t hidden = fields.integer("embedding_length"),
                      heads = fields.integer("attention.head_count");
  fields.require(heads > 0, "attention.head_count", "must not be 0");
  const std::uint64_t head_dim = fields.integer_or("attention.key_length", hidden / heads);
  fields.require(fields.has("attention.key_length") || hidden % heads == 0, "attention.head_count",
                 "does not divide embedding_length, and attention.key_length is absent");
  fields.require(fields.integer_or("attention.value_length", head_dim) == head_dim, "attention.value_length",
                 "values of another length than keys are not supported");
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = fields.integer_or("attention.head_count_kv", heads);
  config["head_dim"] = head_dim;
  const std::uint64_t rotated = fields.integer_or("rope.dimension_count", head_dim);
  fields.require(rotated <= head_dim, "rope.dimension_count", "is more than a head has");
  if (rotated == head_dim) return;
  double part = static_cast<double>(rotated) / static_cast<double>(head_dim);
  // The quotient's product with head_dim is cut to an integer, which must not be one less.
  if (part * static_cast<double>(head_dim) < static_cast<double>(rotated)) part = std::nextafter(part, 1.0);
  config["partial_rotary_factor"] = part;
}

/// The sizes of latent attention. Files in which each head has matrices of its own say those of the cached
/// vectors under the usual keys.
void read_latent_sizes(Fields& fields, json::object& config) {
  const std::uint64_t rotated = fields.integer("rope.dimension_count");
  const std::uint64_t key = fields.integer("attention.key_length"),
                      value = fields.integer("attention.value_length"),
                      expanded = fields.integer_or("attention.key_length_mla", key);
  fields.require(rotated <= expanded, "rope.dimension_count", "is more than a head has");
  (void)fields.integer_or("attention.head_count_kv", 1);
  config["hidden_size"] = fields.integer("embedding_length");
  config["num_attention_heads"] = fields.integer("attention.head_count");
  config["kv_lora_rank"] = fields.integer("attention.kv_lora_rank");
  const std::uint64_t query_rank = fields.integer_or("attention.q_lora_rank", 0);
  config["q_lora_rank"] = query_rank == 0 ? json::value(nullptr) : json::value(query_rank);
  config["qk_nope_head_dim"] = expanded - rotated;
  config["qk_rope_head_dim"] = rotated;
  config["v_head_dim"] = fields.integer_or("attention.value_length_mla", value);
}

/// What DeepSeek's files say beside: the first layers without experts, groups of experts, and a factor on the
/// scale of attention, of which they say the slope; the other one that transformers knows is the same.
void read_deepseek(Fields& fields, bool sigmoid, json::object& config) {
  config["first_k_dense_replace"] = fields.integer_or("leading_dense_block_count", 0);
  config["n_shared_experts"] = fields.integer_or("expert_shared_count", 0);
  config["routed_scaling_factor"] = fields.number_or("expert_weights_scale", 1);
  const std::uint64_t gating = fields.integer_or("expert_gating_func", 1);
  fields.require(gating == 1 || gating == 2, "expert_gating_func",
                 "only softmax (1) and sigmoid (2) are known");
  const std::uint64_t groups = fields.integer_or("expert_group_count", 0);
  if (groups > 1) {
    config["n_group"] = groups;
    config["topk_group"] = fields.integer("expert_group_used_count");
  } else {
    (void)fields.integer_or("expert_group_used_count", 0);
    if (sigmoid) config["n_group"] = config["topk_group"] = 1;
  }
  config["topk_method"] = sigmoid ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy";
  const double slope = fields.number_or("rope.scaling.yarn_log_multiplier", 0);
  if (!config.contains("rope_scaling")) return;
  fields.require(slope > 0, "rope.scaling.type", "scaling without yarn_log_multiplier is not supported");
  json::object& scaling = config["rope_scaling"].as_object();
  scaling["mscale"] = scaling["mscale_all_dim"] = slope / 0.1;
}

/// Experts, whose width some families call intermediate_size.
void read_experts(Fields& fields, const Family& family, json::object& config) {
  config["num_experts"] = fields.integer("expert_count");
  config["num_experts_per_tok"] = fields.integer("expert_used_count");
  const std::uint64_t width =
      fields.integer_or("expert_feed_forward_length", fields.integer_or("feed_forward_length", 0));
  config[family.experts.width == 0 ? "intermediate_size" : "moe_intermediate_size"] = width;
  if (family.type == "qwen2_moe")
    config["shared_expert_intermediate_size"] = fields.integer("expert_shared_feed_forward_length");
  // llama.cpp has it as a rule of the architecture, but for DeepSeek's.
  const bool normalised = family.type == "qwen3_moe" || family.experts.normalised;
  const bool given = fields.flag_or("expert_weights_norm", normalised);
  fields.require(given == normalised || family.latent.rank != 0, "expert_weights_norm",
                 "differs from what this architecture computes");
  if (!family.experts.normalised) config["norm_topk_prob"] = given;
}

/// Which layers have a window, where the file lists them.
void read_pattern(Fields& fields, json::object& config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (!fields.has("attention.sliding_window")) return;
  config["sliding_window"] = fields.integer("attention.sliding_window");
  if (!fields.has(kPattern)) return;
  json::array types;
  for (const bool slides : fields.flags(kPattern))
    types.emplace_back(slides ? "sliding_attention" : "full_attention");
  config["layer_types"] = std::move(types);
}

/// What llama.cpp knows of Gemma 2 and 3 without the file: the largest, of so many layers, divides queries by
/// the width of a head as if heads shared the residual stream.
void read_gemma(Fields& fields, std::uint64_t layers_of_27b, json::object& config) {
  const bool largest = fields.integer("block_count") == layers_of_27b;
  config["sliding_window"] = fields.integer("attention.sliding_window");
  config["query_pre_attn_scalar"] =
      largest ? fields.integer("embedding_length") / fields.integer("attention.head_count")
              : config["head_dim"].to_number<std::uint64_t>();
}

void read_gemma2(Fields& fields, json::object& config) {
  read_gemma(fields, 46, config);
  config["attn_logit_softcapping"] = fields.number("attn_logit_softcapping");
  config["final_logit_softcapping"] = fields.number("final_logit_softcapping");
}

/// Without the file, full layers are every sixth, and windows rotate by a base of 10,000.
void read_gemma3(Fields& fields, json::object& config) {
  read_gemma(fields, 62, config);
  config["rope_local_base_freq"] = fields.number_or("rope.freq_base_swa", 10000);
}

/// Files of Llama 4 do not say which layers see chunks and do not rotate, how long chunks are, nor how
/// queries are sharpened: llama.cpp has these as rules, which are what the class takes for absent fields. It
/// also knows the one model without a norm of queries and keys (Maverick) by its number of experts.
void read_llama4(Fields& fields, json::object& config) {
  constexpr std::uint64_t kExpertsOfMaverick = 128;
  config["intermediate_size_mlp"] = fields.integer("feed_forward_length");
  (void)fields.integer("expert_feed_forward_length");
  config["interleave_moe_layer_step"] = fields.integer("interleave_moe_layer_step");
  config["use_qk_norm"] = fields.integer("expert_count") != kExpertsOfMaverick;
}

/// What files of this family alone say.
void read_own(const Gguf& file, Fields& fields, const Family& family, json::object& config) {
  const std::string_view type = family.type;
  const auto has = [&](const char* name) { return file.tensors().contains(name); };
  if (type == "phi3") {
    // 0 means that there is none.
    if (const std::uint64_t window = fields.integer_or("attention.sliding_window", 0))
      config["sliding_window"] = window;
  } else if (type == "gemma2") {
    read_gemma2(fields, config);
  } else if (type == "gemma3_text") {
    read_gemma3(fields, config);
  } else if (!type.starts_with("gemma") && family.attention_bias != Family::Biased::none) {
    config["attention_bias"] = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  }
  if (type == "llama4_text") read_llama4(fields, config);
  if (type == "glm" && has("blk.0.attn_qkv.weight")) config["kvsim_fused_qkv"] = true;
  if (type == "olmo2") (void)fields.integer_or("attention.sliding_window", 0);
  // Files have the whole factors of norms.
  if (family.parts.norms_from_one) config["kvsim_whole_norms"] = true;
  if (family.mlp_bias) config["mlp_bias"] = has("blk.0.ffn_up.bias");
  if (type == "gpt_neox") config["use_parallel_residual"] = fields.flag_or("use_parallel_residual", true);
  if (type == "cohere") config["use_qk_norm"] = has("blk.0.attn_q_norm.weight");
  if (family.logit_scale != 0) config["logit_scale"] = fields.number("logit_scale");
  if (type == "cohere2" || type == "exaone4" || type == "gpt_oss" || type == "olmo3")
    read_pattern(fields, config);
  // A window that no key names is none, whatever the class takes.
  if (type == "exaone4" && !fields.has("attention.sliding_window")) config["sliding_window"] = nullptr;
  // llama.cpp rounds where the ramp begins and ends, the model does not.
  if (type == "gpt_oss" && config.contains("rope_scaling"))
    config["rope_scaling"].as_object()["truncate"] = false;
  if (family.multipliers) {
    config["embedding_multiplier"] = fields.number("embedding_scale");
    config["residual_multiplier"] = fields.number("residual_scale");
    config["attention_multiplier"] = fields.number("attention.scale");
    config["logits_scaling"] = fields.number("logit_scale");
  }
}

json::array end_tokens(const Gguf& file) {
  json::array ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (file.has(key)) ids.push_back(file.integer(key));
  }
  return ids;
}

json::object origin(const Gguf& file) {
  json::object types;
  for (const auto& [name, tensor] : file.tensors()) {
    json::value& count = types[tensor.type->name];
    count = count.is_null() ? 1 : count.as_int64() + 1;
  }
  return {{"file", file.path().substr(file.path().rfind('/') + 1)},
          {"version", file.version()},
          {"types", types}};
}

using Names = std::pair<std::string_view, std::string_view>;
constexpr Names kWhole[]{{"token_embd.weight", "model.embed_tokens.weight"},
                         {"output_norm.weight", "model.norm.weight"},
                         {"output.weight", "lm_head.weight"}};
constexpr Names kOfLayer[]{{"attn_norm", "input_layernorm"},
                           {"attn_q", "self_attn.q_proj"},
                           {"attn_k", "self_attn.k_proj"},
                           {"attn_v", "self_attn.v_proj"},
                           {"attn_qkv", "self_attn.qkv_proj"},
                           {"attn_output", "self_attn.o_proj"},
                           {"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"},
                           {"attn_q_a", "self_attn.q_a_proj"},
                           {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                           {"attn_q_b", "self_attn.q_b_proj"},
                           {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                           {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                           {"attn_kv_b", "self_attn.kv_b_proj"},
                           {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"},
                           {"ffn_gate_inp", "mlp.gate"},
                           {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};
/// Norms in the order of NormNames.
constexpr std::array<std::string_view, 4> kNorms{"attn_norm", "post_attention_norm", "ffn_norm",
                                                 "post_ffw_norm"};
/// Matrices of many experts or heads in one tensor, and what one of them is called.
constexpr Names kStacked[]{{"ffn_gate_exps", "mlp.experts.#.gate_proj"},
                           {"ffn_up_exps", "mlp.experts.#.up_proj"},
                           {"ffn_down_exps", "mlp.experts.#.down_proj"},
                           {"attn_k_b", "self_attn.k_b_proj.#"},
                           {"attn_v_b", "self_attn.v_b_proj.#"}};

/// blk.LAYER.PART.weight or .bias, taken apart; empty for another tensor.
struct LayerPart {
  std::string_view layer, part, ending;
};
LayerPart layer_part(std::string_view name) {
  constexpr std::string_view kStart = "blk.";
  const std::size_t first = name.find('.', kStart.size()), last = name.rfind('.');
  if (!name.starts_with(kStart) || first == std::string_view::npos || last <= first) return {};
  return {name.substr(kStart.size(), first - kStart.size()), name.substr(first + 1, last - first - 1),
          name.substr(last)};
}

/// What a Hugging Face checkpoint calls a part of a layer; parts that are not known keep their names.
std::string part_name(std::string_view part, const Family& family) {
  // gpt-oss's norm before the feed-forward has the name of one behind attention.
  if (family.type == "gpt_oss" && part == "post_attention_norm") part = "ffn_norm";
  for (std::size_t place = 0; place < kNorms.size(); ++place)
    if (part == kNorms[place] && family.parts.norms[place] != nullptr) return family.parts.norms[place];
  if (part == "ffn_up" && family.parts.fused_gate_up) return "mlp.gate_up_proj";
  if (part == "ffn_gate_inp" && (family.experts.biased || family.experts.scaled_inputs)) return "mlp.router";
  for (const char* shared : {"gate", "up", "down"})
    if (part == "ffn_" + std::string(shared) + "_shexp")
      return (family.experts.shared_gate ? "mlp.shared_expert." : "mlp.shared_experts.") +
             std::string(shared) + "_proj";
  std::string ours(part);
  for (const auto& [theirs, known] : kOfLayer)
    if (theirs == part) ours = known;
  for (const auto& [theirs, known] : kStacked)
    if (theirs == part) ours = known;
  return ours;
}

/// The name in a Hugging Face checkpoint, with a # for the number of a stacked matrix. Unknown ones of a
/// layer get a name of that layer, which load_weights() refuses.
std::string checkpoint_name(const Gguf& file, const std::string& name, const Family& family) {
  for (const auto& [theirs, ours] : kWhole)
    if (theirs == name) return std::string(ours);
  if (name == "output_norm.bias" && family.parts.layer_norm) return "model.norm.bias";
  const LayerPart split = layer_part(name);
  if (split.layer.empty())
    input_error("kvsim does not know this tensor", file.path() + " tensor " + in_quotes(name));
  const std::string layer = "model.layers." + std::string(split.layer) + ".";
  // These two have no ending, or another.
  if (split.part == "attn_sinks") return layer + "self_attn.sinks";
  if (split.part == "exp_probs_b") return layer + "mlp.gate.e_score_correction_bias";
  return layer + part_name(split.part, family) + std::string(split.ending);
}

/// Adds the matrices of a stacked tensor, or the vectors.
void add_parts(const StoredTensor& stack, const std::string& name, TensorMap& tensors) {
  constexpr std::uint64_t kMost = 4096;
  const std::uint64_t count = stack.shape.empty() ? 0 : stack.shape[0];
  if (stack.shape.size() < 2 || count == 0 || count > kMost)
    input_error("expected 1 to 4096 matrices in one tensor", stack.file + " tensor " + in_quotes(name));
  const std::size_t at = name.find('#'), bytes = stack.data.size() / count;
  for (std::uint64_t i = 0; i < count; ++i) {
    StoredTensor part = stack;
    part.shape.erase(part.shape.begin());
    part.data = stack.data.subspan(i * bytes, bytes);
    tensors.emplace(std::string(name).replace(at, 1, std::to_string(i)), std::move(part));
  }
}

/// A tensor of a type that is known. Its rows are those of `interleaved` heads, in which components i and i +
/// half stand side by side, unless that is 0.
StoredTensor stored(const Gguf& file, const std::string& name, const GgufTensor& tensor,
                    std::uint64_t interleaved, std::vector<std::unique_ptr<std::byte[]>>& owned) {
  const GgufType& type = *tensor.type;
  const std::string where = file.path() + " tensor " + in_quotes(name);
  if (!can_widen(type)) {
    input_error("type " + std::string(type.name) + " is not supported", where,
                "kvsim reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K and MXFP4.");
  }
  StoredTensor out{std::string(type.name), tensor.shape, tensor.data, file.path(),
                   type.items == 1 ? nullptr : &type};
  if (interleaved == 0) return out;

  const std::uint64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (rows == 0 || rows % (2 * interleaved) != 0 || tensor.data.size() % rows != 0)
    input_error("its rows cannot be those of " + std::to_string(interleaved) + " heads", where);
  const std::uint64_t row_bytes = tensor.data.size() / rows, dim = rows / interleaved, half = dim / 2;
  owned.push_back(std::make_unique_for_overwrite<std::byte[]>(tensor.data.size()));
  std::byte* const to = owned.back().get();
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t within = row % dim, from = row - within + within % half * 2 + within / half;
    std::memcpy(to + row * row_bytes, tensor.data.data() + from * row_bytes, row_bytes);
  }
  out.data = {to, tensor.data.size()};
  return out;
}

}  // namespace

std::string gguf_config(const Gguf& file) {
  const Architecture architecture = checked_architecture(file);
  const Family& family = family_of(architecture);
  check_kind(file);
  Fields fields(file, architecture.name);
  const std::vector<std::uint64_t>& embedding = file.tensor("token_embd.weight").shape;
  json::object config{{"model_type", architecture.type},
                      {"num_hidden_layers", fields.integer("block_count")},
                      {"intermediate_size", fields.integer("feed_forward_length")},
                      {"vocab_size", fields.integer_or("vocab_size", embedding.empty() ? 0 : embedding[0])},
                      {"max_position_embeddings", fields.integer("context_length")},
                      {family.parts.centred_norms ? "layer_norm_eps" : "rms_norm_eps",
                       fields.number(family.parts.centred_norms ? "attention.layer_norm_epsilon"
                                                                : "attention.layer_norm_rms_epsilon")},
                      {"rope_theta", fields.number_or("rope.freq_base", 10000)}};
  config["tie_word_embeddings"] = !file.tensors().contains("output.weight");
  if (family.latent.rank != 0)
    read_latent_sizes(fields, config);
  else
    read_heads(fields, config);
  // Files say how many components rotate, whatever the class takes.
  if (family.partial_rotary != 0 && family.partial_rotary != 1) config.emplace("partial_rotary_factor", 1);
  read_scaling(file, fields, config);
  read_own(file, fields, family, config);
  if (family.experts.count != 0) {
    read_experts(fields, family, config);
    if (family.latent.rank != 0) read_deepseek(fields, family.experts.corrected, config);
  } else {
    for (const char* name : {"expert_count", "expert_used_count"})
      fields.require(fields.integer_or(name, 0) == 0, name, "a model of this architecture has no experts");
  }
  constexpr const char* kLayout = "tensor_data_layout";
  fields.require(fields.text_or(kLayout, "Meta AI original pth") == "Meta AI original pth", kLayout,
                 "this layout is not known");
  fields.check_rest();
  config["eos_token_id"] = end_tokens(file);
  config["gguf"] = origin(file);
  return json::serialize(config);
}

std::string gguf_config(const std::string& path) {
  return gguf_config(GgufFile(path).content);
}

std::pair<double, double> gguf_bits(const std::string& path) {
  const GgufFile file(path);
  double bits[2]{}, parameters[2]{};
  for (const auto& [name, tensor] : file.content.tensors()) {
    if (tensor.shape.size() < 2) continue;  // norms, biases and divisors of rotary angles
    const bool apart = !name.starts_with("blk.");
    bits[apart] += 8 * static_cast<double>(tensor.data.size());
    parameters[apart] += static_cast<double>(tensor.elements());
  }
  return {bits[0] / parameters[0], bits[1] / parameters[1]};
}

TensorMap gguf_tensors(const Gguf& file, std::vector<std::unique_ptr<std::byte[]>>& owned) {
  const Architecture architecture = checked_architecture(file);
  const Family& family = family_of(architecture);
  const std::string heads = std::string(architecture.name) + ".attention.head_count";
  TensorMap tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    if (name == kRopeDivisors || name == kShortDivisors || name == kLongDivisors)
      continue;  // of gguf_config()
    const std::string_view part = layer_part(name).part;
    const bool q = part == "attn_q", k = part == "attn_k";
    std::uint64_t interleaved = 0;
    if (architecture.interleaved && (q || k)) {
      interleaved = file.integer(heads);
      if (k) interleaved = file.integer_or(heads + "_kv", interleaved);
    }
    const std::string ours = checkpoint_name(file, name, family);
    StoredTensor made = stored(file, name, tensor, interleaved, owned);
    if (part == "ffn_gate_inp_shexp" && made.shape.size() == 1) made.shape.insert(made.shape.begin(), 1);
    if (ours.find('#') != std::string::npos)
      add_parts(made, ours, tensors);
    else
      tensors.emplace(ours, std::move(made));
  }
  return tensors;
}

}  // namespace kvsim::model
