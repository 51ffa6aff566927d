#include "traces/model/gguf_model.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/gguf_blocks.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kRopeDivisors = "rope_freqs.weight";
constexpr const char* kShortDivisors = "rope_factors_short.weight";
constexpr const char* kLongDivisors = "rope_factors_long.weight";
constexpr std::uint64_t kAnyPosition = 1ULL << 24;  // more than any run of kvsim reaches

std::string checked_architecture(const Gguf& file) {
  const std::vector<std::string> known{"gemma3", "llama", "phi3", "qwen2", "qwen3"};
  const std::string name(file.text(kArchitecture));
  for (const std::string& one : known)
    if (one == name) return name;
  const std::string near = suggestion(name, known);
  input_error("architecture " + in_quotes(name) + " is not supported", file.where(kArchitecture),
              "Supported: gemma3, llama, phi3, qwen2, qwen3." + (near.starts_with("Did") ? " " + near : ""));
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
  Fields(const Gguf& file, const std::string& architecture) : file_(file), prefix_(architecture + ".") {}

  std::uint64_t integer(std::string_view name) { return file_.integer(take(name)); }
  std::uint64_t integer_or(std::string_view name, std::uint64_t absent) {
    return file_.integer_or(take(name), absent);
  }
  double number(std::string_view name) { return file_.number(take(name)); }
  double number_or(std::string_view name, double absent) { return file_.number_or(take(name), absent); }
  std::string_view text_or(std::string_view name, std::string_view absent) {
    return file_.text_or(take(name), absent);
  }
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

/// What llama.cpp knows of Gemma 3 without the file: full layers are every sixth, windows rotate by a base of
/// 10,000, and one of 62 layers divides by the width of a head as if heads shared the residual stream.
void read_gemma3(Fields& fields, json::object& config) {
  constexpr std::uint64_t kLayersOf27B = 62;
  const bool largest = fields.integer("block_count") == kLayersOf27B;
  config["sliding_window"] = fields.integer("attention.sliding_window");
  config["query_pre_attn_scalar"] =
      largest ? fields.integer("embedding_length") / fields.integer("attention.head_count")
              : config["head_dim"].to_number<std::uint64_t>();
  config["rope_local_base_freq"] = fields.number_or("rope.freq_base_swa", 10000);
  config["kvsim_whole_norms"] = true;
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
                           {"ffn_norm", "post_attention_layernorm"},
                           {"post_attention_norm", "post_attention_layernorm"},
                           {"post_ffw_norm", "post_feedforward_layernorm"},
                           {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"}};

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

/// The name in a Hugging Face checkpoint. Unknown ones of a layer get a name of that layer, which
/// load_weights() refuses.
std::string checkpoint_name(const Gguf& file, const std::string& name, const std::string& architecture) {
  for (const auto& [theirs, ours] : kWhole)
    if (theirs == name) return std::string(ours);
  const LayerPart split = layer_part(name);
  if (split.layer.empty())
    input_error("kvsim does not know this tensor", file.path() + " tensor " + in_quotes(name));
  std::string part(split.part);
  for (const auto& [theirs, ours] : kOfLayer)
    if (theirs == split.part) part = ours;
  if (architecture == "phi3" && split.part == "ffn_up") part = "mlp.gate_up_proj";
  if (architecture == "gemma3" && split.part == "ffn_norm") part = "pre_feedforward_layernorm";
  return "model.layers." + std::string(split.layer) + "." + part + std::string(split.ending);
}

/// A tensor of a type that is known. Its rows are those of `interleaved` heads, in which components i and i +
/// half stand side by side, unless that is 0.
StoredTensor stored(const Gguf& file, const std::string& name, const GgufTensor& tensor,
                    std::uint64_t interleaved, std::vector<std::unique_ptr<std::byte[]>>& owned) {
  const GgufType& type = *tensor.type;
  const std::string where = file.path() + " tensor " + in_quotes(name);
  if (!can_widen(type)) {
    input_error("type " + std::string(type.name) + " is not supported", where,
                "kvsim reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K.");
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
  const std::string architecture = checked_architecture(file);
  check_kind(file);
  Fields fields(file, architecture);
  const std::vector<std::uint64_t>& embedding = file.tensor("token_embd.weight").shape;
  json::object config{{"model_type", architecture == "gemma3" ? "gemma3_text" : architecture},
                      {"num_hidden_layers", fields.integer("block_count")},
                      {"intermediate_size", fields.integer("feed_forward_length")},
                      {"vocab_size", fields.integer_or("vocab_size", embedding.empty() ? 0 : embedding[0])},
                      {"max_position_embeddings", fields.integer("context_length")},
                      {"rms_norm_eps", fields.number("attention.layer_norm_rms_epsilon")},
                      {"rope_theta", fields.number_or("rope.freq_base", 10000)}};
  config["tie_word_embeddings"] = !file.tensors().contains("output.weight");
  read_heads(fields, config);
  read_scaling(file, fields, config);
  if (architecture == "phi3") {
    // 0 means that there is none.
    if (const std::uint64_t window = fields.integer_or("attention.sliding_window", 0))
      config["sliding_window"] = window;
  } else if (architecture == "gemma3") {
    read_gemma3(fields, config);
  } else if (architecture != "qwen2") {
    config["attention_bias"] = file.tensors().contains("blk.0.attn_q.bias");
    if (architecture == "llama") config["mlp_bias"] = file.tensors().contains("blk.0.ffn_up.bias");
  }
  for (const char* name : {"expert_count", "expert_used_count"})
    fields.require(fields.integer_or(name, 0) == 0, name, "mixture-of-experts models are not supported");
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
  const std::string architecture = checked_architecture(file);
  TensorMap tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    if (name == kRopeDivisors || name == kShortDivisors || name == kLongDivisors)
      continue;  // of gguf_config()
    const std::string_view part = layer_part(name).part;
    const bool q = part == "attn_q", k = part == "attn_k";
    std::uint64_t interleaved = 0;
    if (architecture == "llama" && (q || k)) {
      interleaved = file.integer("llama.attention.head_count");
      if (k) interleaved = file.integer_or("llama.attention.head_count_kv", interleaved);
    }
    tensors.emplace(checkpoint_name(file, name, architecture),
                    stored(file, name, tensor, interleaved, owned));
  }
  return tensors;
}

}  // namespace kvsim::model
