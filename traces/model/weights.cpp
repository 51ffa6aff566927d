#include "traces/model/weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "traces/model/stored_weights.hpp"

namespace kvsim::model {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

using Renamed = std::pair<std::string_view, std::string_view>;
/// What checkpoints of a type call parts of names, beside what Llama's call them. GGUF files are read as if
/// all had Llama's.
constexpr Renamed kMixtralNames[]{
    {"mlp.", "block_sparse_moe."}, {"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}};
constexpr Renamed kNeoxNames[]{{"model.embed_tokens", "gpt_neox.embed_in"},
                               {"model.layers.", "gpt_neox.layers."},
                               {"model.norm", "gpt_neox.final_layer_norm"},
                               {"lm_head", "embed_out"},
                               {"self_attn.qkv_proj", "attention.query_key_value"},
                               {"self_attn.o_proj", "attention.dense"},
                               {"up_proj", "dense_h_to_4h"},
                               {"down_proj", "dense_4h_to_h"}};
constexpr Renamed kOptNames[]{{"model.embed_", "model.decoder.embed_"},
                              {"model.layers.", "model.decoder.layers."},
                              {"model.norm", "model.decoder.final_layer_norm"},
                              {"o_proj", "out_proj"},
                              {"input_layernorm", "self_attn_layer_norm"},
                              {"post_attention_layernorm", "final_layer_norm"},
                              {"mlp.up_proj", "fc1"},
                              {"mlp.down_proj", "fc2"}};
constexpr Renamed kLlama4Names[]{{"mlp.", "feed_forward."}, {"shared_experts", "shared_expert"}};
/// The same beside a tower of images.
constexpr Renamed kLlama4TextNames[]{{"mlp.", "feed_forward."},
                                     {"shared_experts", "shared_expert"},
                                     {"model.", "language_model.model."},
                                     {"lm_head", "language_model.lm_head"}};
std::span<const Renamed> renamed_of(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string& type = config.model_type;
  if (checkpoint.from_gguf()) return {};
  if (type == "mixtral") return kMixtralNames;
  if (type == "gpt_neox") return kNeoxNames;
  if (type == "opt") return kOptNames;
  if (type == "llama4_text" && config.text_only) return kLlama4TextNames;
  if (type == "llama4_text") return kLlama4Names;
  return {};
}

/// Returns tensors by the names of Llama's and records which were requested.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), stored_(config.stored_weights), names_(renamed_of(checkpoint, config)) {}

  std::vector<float> vector(const std::string& name, const std::vector<std::uint64_t>& shape) {
    const StoredTensor& tensor = take(name, shape);
    const std::uint64_t length = tensor.elements();
    std::vector<float> values(length);
    if (tensor.blocks != nullptr) {
      widen_blocks(*tensor.blocks, tensor.data.data(), length / tensor.blocks->items, values.data());
    } else {
      widen(tensor_elem(tensor, name), tensor.data.data(), length, values.data());
    }
    return values;
  }

  Linear linear(const std::string& name, std::uint64_t out, std::uint64_t in, bool bias) {
    Linear linear = matrix(take_matrix(name + ".weight", out, in), name + ".weight", 0, out, in);
    if (bias) linear.bias = vector(name + ".bias", {out});
    return linear;
  }

  /// Splits a fused tensor into its parts: rows [0, outs[0]), the next outs[1] rows, ... With `heads`, parts
  /// are equally long, and each head's rows of all parts stand together.
  std::vector<Linear> fused(const std::string& name, const std::vector<std::uint64_t>& outs, std::uint64_t in,
                            bool bias = false, std::uint64_t heads = 0) {
    const std::uint64_t rows = std::accumulate(outs.begin(), outs.end(), std::uint64_t{0});
    Held whole = take_matrix(name + ".weight", rows, in);
    std::vector<float> biases = bias ? vector(name + ".bias", {rows}) : std::vector<float>();
    if (heads > 0) {
      const auto sorted = by_part(whole.tensor.data, rows, heads, outs.size());
      whole.tensor.data = *sorted;
      whole.owner = sorted;
      if (bias) {
        const auto floats = by_part(std::as_bytes(std::span(biases)), rows, heads, outs.size());
        std::memcpy(biases.data(), floats->data(), floats->size());
      }
    }
    std::vector<Linear> parts;
    std::uint64_t first = 0;
    for (const std::uint64_t out : outs) {
      parts.push_back(matrix(whole, name + ".weight", first, out, in));
      if (bias) {
        const auto of_part = std::span(biases).subspan(first, out);
        parts.back().bias.assign(of_part.begin(), of_part.end());
      }
      first += out;
    }
    return parts;
  }

  /// Outputs of a matrix: every `step`-th from `first` on.
  struct Outputs {
    std::uint64_t first = 0, step = 1, count = 0;
  };

  /// The matrices of a tensor [count, in, width], which are stored input by input, with their rows of
  /// `name`_bias [count, width] if there are biases. Of the width's outputs `of`.
  std::vector<Linear> stacked(const std::string& llama_name, std::uint64_t count, std::uint64_t in,
                              std::uint64_t width, const Outputs& of, bool biased) {
    const std::string name = in_file(llama_name);
    std::vector<Linear> matrices = checkpoint_.has(name + "_blocks")
                                       ? stacked_mxfp4(name, count, in, width, of)
                                       : stacked_plain(name, count, in, width, of);
    if (!biased) return matrices;
    const std::vector<float> biases = vector(name + "_bias", {count, width});
    for (std::uint64_t number = 0; number < count; ++number)
      for (std::uint64_t out = 0; out < of.count; ++out)
        matrices[number].bias.push_back(biases[number * width + of.first + out * of.step]);
    return matrices;
  }

  bool has(const std::string& name) const { return checkpoint_.has(in_file(name)); }
  /// What the checkpoint calls a tensor.
  std::string in_file(std::string name) const {
    if (name.starts_with("language_model.")) return name;  // it has its prefix
    for (const auto& [ours, theirs] : names_)
      if (const std::size_t at = name.find(ours); at != std::string::npos)
        name.replace(at, ours.size(), theirs);
    return name;
  }
  bool from_gguf() const { return checkpoint_.from_gguf(); }
  const std::set<std::string>& taken() const { return taken_; }

 private:
  /// A tensor, and what owns its data if that is not the file.
  struct Held {
    StoredTensor tensor;
    std::shared_ptr<const void> owner{};
  };

  /// Rows [parts, heads, ...] of what has them as [heads, parts, ...].
  static std::shared_ptr<const std::vector<std::byte>> by_part(std::span<const std::byte> from,
                                                               std::uint64_t rows, std::uint64_t heads,
                                                               std::uint64_t parts) {
    const auto to = std::make_shared<std::vector<std::byte>>(from.size());
    const std::uint64_t piece = from.size() / rows * (rows / heads / parts);
    for (std::uint64_t part = 0; part < parts; ++part)
      for (std::uint64_t head = 0; head < heads; ++head)
        std::copy_n(from.data() + (head * parts + part) * piece, piece,
                    to->data() + (part * heads + head) * piece);
    return to;
  }

  std::vector<Linear> stacked_plain(const std::string& name, std::uint64_t count, std::uint64_t in,
                                    std::uint64_t width, const Outputs& of) {
    const StoredTensor& tensor = take(name, {count, in, width});
    const Elem elem = tensor_elem(tensor, name);
    const std::size_t one = elem_bytes(elem), outs = of.count;
    std::vector<Linear> matrices;
    for (std::uint64_t number = 0; number < count; ++number) {
      const auto rows = std::make_shared<std::vector<std::byte>>(outs * in * one);
      const std::byte* from = tensor.data.data() + number * in * width * one;
      constexpr std::uint64_t kBlock = 32;  // inputs whose lines stay in the CPU cache
      for (std::uint64_t begin = 0; begin < in; begin += kBlock)
        for (std::uint64_t out = 0; out < outs; ++out)
          for (std::uint64_t i = begin; i < std::min(in, begin + kBlock); ++i)
            std::copy_n(from + (i * width + of.first + out * of.step) * one, one,
                        rows->data() + (out * in + i) * one);
      matrices.push_back({rows->data(), elem, outs, in, {}, {}, rows});
    }
    return matrices;
  }

  /// The same in 4 bits (gpt-oss): `name`_blocks [count, width, in / 32, 16], which are stored output by
  /// output, two inputs a byte, and `name`_scales [count, width, in / 32].
  std::vector<Linear> stacked_mxfp4(const std::string& name, std::uint64_t count, std::uint64_t in,
                                    std::uint64_t width, const Outputs& of) {
    const std::uint64_t blocks = in / mxfp4().items, bytes = in / 2;
    const StoredTensor &pairs = take(name + "_blocks", {count, width, blocks, mxfp4().items / 2}),
                       &scales = take(name + "_scales", {count, width, blocks});
    for (const StoredTensor* tensor : {&pairs, &scales})
      if (tensor->dtype != "U8")
        input_error("dtype " + tensor->dtype + ", but numbers in 4 bits and their scales are U8",
                    tensor->file + " tensor " + in_quotes(name + (tensor == &pairs ? "_blocks" : "_scales")));
    if (in % mxfp4().items != 0)
      input_error(std::to_string(in) + " inputs are no whole number of blocks of 32",
                  pairs.file + " tensor " + in_quotes(name + "_blocks"));
    if (std::find(scales.data.begin(), scales.data.end(), std::byte{0xff}) != scales.data.end())
      input_error("a scale is 255, which stands for no number",
                  scales.file + " tensor " + in_quotes(name + "_scales"));
    std::vector<Linear> matrices;
    for (std::uint64_t number = 0; number < count; ++number) {
      std::vector<std::byte> rows;
      for (std::uint64_t out = 0; out < of.count; ++out) {
        const std::uint64_t row = number * width + of.first + out * of.step;
        append_mxfp4(pairs.data.subspan(row * bytes, bytes), scales.data.subspan(row * blocks, blocks), rows);
      }
      matrices.push_back(matrix_of_blocks(mxfp4(), rows.data(), of.count, in));
    }
    return matrices;
  }

  static Linear matrix_of_blocks(const GgufType& type, const std::byte* blocks, std::uint64_t out,
                                 std::uint64_t in) {
    return {nullptr, Elem::f32, out, in, {}, std::make_shared<const PackedWeights>(type, blocks, out, in)};
  }

  /// Rows [first, first + out) of a tensor.
  static Linear matrix(const Held& held, const std::string& name, std::uint64_t first, std::uint64_t out,
                       std::uint64_t in) {
    const auto& [tensor, owner] = held;
    if (const GgufType* type = tensor.blocks)
      return matrix_of_blocks(*type, tensor.data.data() + first * (in / type->items) * type->bytes, out, in);
    const Elem elem = tensor_elem(tensor, name);
    return {tensor.data.data() + first * in * elem_bytes(elem), elem, out, in, {}, {}, owner};
  }

  /// A matrix; one in 8 bits (DeepSeek V3) times its scales, `name`_scale_inv, in bf16.
  Held take_matrix(const std::string& llama_name, std::uint64_t out, std::uint64_t in) {
    const std::string name = in_file(llama_name);
    const StoredTensor& tensor = take(name, {out, in});
    if (tensor.dtype != "F8_E4M3") return {tensor};
    if (stored_.method != "fp8")
      input_error("is stored in 8 bits, and config.json has no quantization_config of the method fp8",
                  tensor.file + " tensor " + in_quotes(name));
    const std::uint64_t block_out = stored_.outputs == 0 ? out : stored_.outputs,
                        block_in = stored_.inputs == 0 ? in : stored_.inputs;
    const std::string scales_name = name + "_scale_inv";
    std::vector<std::uint64_t> shape{(out + block_out - 1) / block_out, (in + block_in - 1) / block_in};
    // A scale of the whole matrix may have any number of dimensions.
    if (const StoredTensor& scales = checkpoint_.tensor(scales_name);
        stored_.outputs == 0 && scales.elements() == 1)
      shape = scales.shape;
    const auto rows = std::make_shared<const std::vector<std::uint16_t>>(
        scaled_rows({tensor.data, in, block_out, block_in, vector(scales_name, shape)}));
    return {{"BF16", tensor.shape, std::as_bytes(std::span(*rows)), tensor.file}, rows};
  }

  const StoredTensor& take(const std::string& llama_name, const std::vector<std::uint64_t>& shape) {
    const std::string name = in_file(llama_name);
    const StoredTensor& tensor = checkpoint_.tensor(name);
    if (tensor.shape != shape) {
      input_error("shape " + shape_text(tensor.shape) + ", but config.json asks for " + shape_text(shape),
                  tensor.file + " tensor " + in_quotes(name));
    }
    taken_.insert(name);
    return tensor;
  }

  const Checkpoint& checkpoint_;
  const StoredWeights& stored_;
  std::span<const Renamed> names_;
  std::set<std::string> taken_;
};

void load_projections(Loader& loader, const ModelConfig& config, const std::string& layer,
                      LayerWeights& weights) {
  const std::string attention = layer + "self_attn.";
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t q_size = std::uint64_t{config.n_heads} * config.head_dim;
  const std::uint64_t kv_size = std::uint64_t{config.n_kv_heads} * config.head_dim;
  if (config.fused_qkv) {
    // GGUF files have them part by part.
    const bool by_head = config.model_type == "gpt_neox" && !loader.from_gguf();
    const std::vector<Linear> qkv = loader.fused(attention + "qkv_proj", {q_size, kv_size, kv_size}, hidden,
                                                 config.qkv_bias, by_head ? config.n_heads : 0);
    weights.q = qkv[0], weights.k = qkv[1], weights.v = qkv[2];
    return;
  }
  weights.q = loader.linear(attention + "q_proj", q_size, hidden, config.qkv_bias);
  weights.k = loader.linear(attention + "k_proj", kv_size, hidden, config.qkv_bias);
  weights.v = loader.linear(attention + "v_proj", kv_size, hidden, config.qkv_bias);
}

/// A matrix whose rows are another's columns.
Linear turned(const Linear& linear) {
  const auto columns = std::make_shared<const std::vector<float>>(linear.transposed());
  return {
      reinterpret_cast<const std::byte*>(columns->data()), Elem::f32, linear.in, linear.out, {}, {}, columns};
}

LatentWeights load_latent(Loader& loader, const ModelConfig& config, const std::string& attention) {
  const Latent& latent = config.latent;
  const std::uint64_t hidden = config.hidden_size;
  LatentWeights weights;
  if (latent.query_rank > 0) {
    weights.down_q = loader.linear(attention + "q_a_proj", latent.query_rank, hidden, false);
    weights.q_norm = loader.vector(attention + "q_a_layernorm.weight", {latent.query_rank});
  }
  weights.q = loader.linear(attention + (latent.query_rank > 0 ? "q_b_proj" : "q_proj"),
                            std::uint64_t{config.n_heads} * (latent.plain + latent.rotated),
                            latent.query_rank > 0 ? latent.query_rank : hidden, false);
  weights.down_kv =
      loader.linear(attention + "kv_a_proj_with_mqa", latent.rank + latent.rotated, hidden, false);
  weights.kv_norm = loader.vector(attention + "kv_a_layernorm.weight", {latent.rank});
  if (loader.has(attention + "k_b_proj.0.weight")) {  // GGUF files have them absorbed
    for (std::uint32_t head = 0; head < config.n_heads; ++head) {
      const std::string number = std::to_string(head);
      weights.keys.push_back(
          loader.linear(attention + "k_b_proj." + number, latent.rank, latent.plain, false));
      weights.values.push_back(
          loader.linear(attention + "v_b_proj." + number, latent.value, latent.rank, false));
    }
    return weights;
  }
  std::vector<std::uint64_t> outs;
  for (std::uint32_t head = 0; head < config.n_heads; ++head)
    outs.insert(outs.end(), {latent.plain, latent.value});
  const std::vector<Linear> parts = loader.fused(attention + "kv_b_proj", outs, latent.rank);
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    weights.keys.push_back(turned(parts[i]));
    weights.values.push_back(parts[i + 1]);
  }
  return weights;
}

GatedMlp load_mlp(Loader& loader, const ModelConfig& config, const std::string& mlp, std::uint64_t inner) {
  const std::uint64_t hidden = config.hidden_size;
  const bool bias = config.mlp_bias || config.experts.biased;
  GatedMlp weights;
  if (config.fused_gate_up) {
    const std::vector<Linear> gate_up = loader.fused(mlp + "gate_up_proj", {inner, inner}, hidden);
    weights.gate = gate_up[0], weights.up = gate_up[1];
  } else {
    if (config.gated_mlp) weights.gate = loader.linear(mlp + "gate_proj", inner, hidden, bias);
    weights.up = loader.linear(mlp + "up_proj", inner, hidden, bias);
  }
  weights.down = loader.linear(mlp + "down_proj", hidden, inner, bias);
  return weights;
}

/// The experts of gpt-oss and Llama 4: all in one tensor, gates and ups in turn, or gates before ups.
ExpertWeights load_stacked_experts(Loader& loader, const ModelConfig& config, const std::string& layer) {
  const Experts& experts = config.experts;
  const std::uint64_t count = experts.count, hidden = config.hidden_size, width = experts.width;
  const std::string mlp = layer + "mlp.", gate_up = mlp + "experts.gate_up_proj";
  const bool in_turn = experts.biased, biased = experts.biased;
  const std::uint64_t step = in_turn ? 2 : 1;
  std::vector<Linear> gates = loader.stacked(gate_up, count, hidden, 2 * width, {0, step, width}, biased),
                      ups = loader.stacked(gate_up, count, hidden, 2 * width,
                                           {in_turn ? 1 : width, step, width}, biased),
                      downs = loader.stacked(mlp + "experts.down_proj", count, width, hidden, {0, 1, hidden},
                                             biased);
  ExpertWeights weights;
  weights.router = loader.linear(mlp + "router", count, hidden, biased);
  for (std::uint64_t expert = 0; expert < count; ++expert)
    weights.experts.push_back({std::move(gates[expert]), std::move(ups[expert]), std::move(downs[expert])});
  if (experts.shared_width > 0)
    weights.shared = load_mlp(loader, config, mlp + "shared_experts.", experts.shared_width);
  return weights;
}

ExpertWeights load_experts(Loader& loader, const ModelConfig& config, const std::string& layer) {
  const Experts& experts = config.experts;
  const std::string mlp = layer + "mlp.";
  const bool stacked = experts.biased || experts.scaled_inputs;
  if (stacked && !loader.has(mlp + "experts.0.gate_proj.weight"))  // of a GGUF file each is apart
    return load_stacked_experts(loader, config, layer);
  ExpertWeights weights;
  weights.router =
      loader.linear(mlp + (stacked ? "router" : "gate"), experts.count, config.hidden_size, experts.biased);
  for (std::uint32_t expert = 0; expert < experts.count; ++expert) {
    const std::string name = mlp + "experts." + std::to_string(expert) + ".";
    weights.experts.push_back(load_mlp(loader, config, name, experts.width));
  }
  if (experts.corrected)
    weights.correction = loader.vector(mlp + "gate.e_score_correction_bias", {experts.count});
  if (experts.shared_width > 0 && experts.shared_gate) {
    weights.shared = load_mlp(loader, config, mlp + "shared_expert.", experts.shared_width);
    weights.shared_gate = loader.linear(mlp + "shared_expert_gate", 1, config.hidden_size, false);
  } else if (experts.shared_width > 0) {
    weights.shared = load_mlp(loader, config, mlp + "shared_experts.", experts.shared_width);
  }
  return weights;
}

/// Whether the layer has experts.
bool has_experts(const ModelConfig& config, std::uint64_t layer) {
  std::uint64_t end = 0;
  for (const LayerKind& kind : config.kinds)
    if (layer < (end += kind.layers)) return kind.mlp == LayerKind::Mlp::experts;
  return false;
}

std::vector<float> load_norm(Loader& loader, const ModelConfig& config, const std::string& name,
                             const std::vector<std::uint64_t>& shape) {
  std::vector<float> norm = loader.vector(name + ".weight", shape);
  if (config.norms_from_one)
    for (float& one : norm) one += 1;
  if (config.layer_norm) {
    const std::vector<float> bias = loader.vector(name + ".bias", shape);
    norm.insert(norm.end(), bias.begin(), bias.end());
  }
  return norm;
}

LayerWeights load_layer(Loader& loader, const ModelConfig& config, std::uint32_t index) {
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
  const std::uint64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::uint64_t q_size = std::uint64_t{config.n_heads} * config.head_dim;
  LayerWeights weights;
  const std::array norms{&weights.attention_norm, &weights.attention_out_norm, &weights.mlp_norm,
                         &weights.mlp_out_norm};
  for (std::size_t i = 0; i < norms.size(); ++i)
    if (config.norms[i] != nullptr) *norms[i] = load_norm(loader, config, layer + config.norms[i], {hidden});
  if (config.bare_qk_norm) {
    if (config.rotates(index)) weights.q_norm = weights.k_norm = std::vector<float>(config.head_dim, 1.0F);
  } else if (config.qk_norm) {
    const auto shape = [&](std::uint64_t heads) -> std::vector<std::uint64_t> {
      if (!config.wide_qk_norm) return {config.head_dim};
      if (config.centred_norms) return {heads, config.head_dim};
      return {heads * config.head_dim};
    };
    weights.q_norm = load_norm(loader, config, attention + "q_norm", shape(config.n_heads));
    weights.k_norm = load_norm(loader, config, attention + "k_norm", shape(config.n_kv_heads));
  }
  const bool latent = config.latent.rank > 0;
  if (latent)
    weights.latent = std::make_shared<const LatentWeights>(load_latent(loader, config, attention));
  else
    load_projections(loader, config, layer, weights);
  weights.o = loader.linear(attention + "o_proj", hidden,
                            latent ? std::uint64_t{config.n_heads} * config.latent.value : q_size,
                            config.output_bias);
  if (config.sinks) weights.sinks = loader.vector(attention + "sinks", {config.n_heads});
  if (has_experts(config, index))
    weights.experts = std::make_shared<const ExpertWeights>(load_experts(loader, config, layer));
  else
    static_cast<GatedMlp&>(weights) = load_mlp(loader, config, mlp, inner);
  return weights;
}

/// Whether the tensor is of a layer behind the last one that predicts further tokens (DeepSeek V3).
bool predicts_further(const ModelConfig& config, const std::string& name) {
  return config.predicts_further && name.starts_with("model.layers." + std::to_string(config.n_layers) + ".");
}

/// Whether the tensor holds frequencies or masks (GPT-NeoX) that old checkpoints store although they follow
/// from config.json.
bool redundant(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attention.bias") ||
         name.ends_with(".attention.masked_bias");
}

void check_unused(const Checkpoint& checkpoint, const ModelConfig& config, const Loader& loader,
                  std::vector<std::string>& notes) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (loader.taken().contains(name) || redundant(name)) continue;
    if (config.text_only && !name.starts_with("language_model.")) continue;  // of other senses
    if (name.starts_with(loader.in_file("model.layers.")) && !predicts_further(config, name))
      input_error("a " + config.model_type + " model of " + std::to_string(config.n_layers) +
                      " layers has no such tensor",
                  tensor.file + " tensor " + in_quotes(name),
                  "config.json and the checkpoint do not belong together, or the model is of another kind.");
    notes.push_back("tensor " + in_quotes(name) + " is not used");
  }
  for (const std::string& name : checkpoint.unmapped())
    notes.push_back("tensor " + in_quotes(name) + " is not in the index and not used");
}

}  // namespace

const float* Linear::rows(std::uint64_t first, std::uint64_t n, std::vector<float>& scratch) const {
  if (packed) {
    if (scratch.size() < n * in) scratch.resize(n * in);
    for (std::uint64_t row = 0; row < n; ++row) packed->row(first + row, scratch.data() + row * in);
    return scratch.data();
  }
  const std::byte* from = data + first * in * elem_bytes(elem);
  if (elem == Elem::f32 && reinterpret_cast<std::uintptr_t>(from) % alignof(float) == 0)
    return reinterpret_cast<const float*>(from);
  if (scratch.size() < n * in) scratch.resize(n * in);
  widen(elem, from, n * in, scratch.data());
  return scratch.data();
}

std::vector<float> Linear::transposed() const {
  constexpr std::uint64_t kBlock = 16;  // a cache line of the result
  std::vector<float> result(in * out), scratch;
  for (std::uint64_t first = 0; first < out; first += kBlock) {
    const std::uint64_t n = std::min(kBlock, out - first);
    const float* block = rows(first, n, scratch);
    for (std::uint64_t column = 0; column < in; ++column)
      for (std::uint64_t row = 0; row < n; ++row)
        result[column * out + first + row] = block[row * in + column];
  }
  return result;
}

std::vector<float> LayerWeights::output_projection() const {
  const std::vector<float> of_values = o.transposed();
  if (!latent) return of_values;
  const std::uint64_t hidden = o.out;
  std::vector<float> all;
  const float* from = of_values.data();
  for (const Linear& values : latent->values) {
    const std::vector<float> expanded = values.transposed();  // [rank, value]
    std::vector<float> row(hidden);
    for (std::uint64_t c = 0; c < values.in; ++c) {
      std::fill(row.begin(), row.end(), 0.0F);
      for (std::uint64_t i = 0; i < values.out; ++i)
        for (std::uint64_t j = 0; j < hidden; ++j)
          row[j] += expanded[c * values.out + i] * from[i * hidden + j];
      all.insert(all.end(), row.begin(), row.end());
    }
    from += values.out * hidden;
  }
  return all;
}

Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  Loader loader(checkpoint, config);
  Weights weights;
  weights.embedding = loader.linear("model.embed_tokens", config.vocab_size, config.hidden_size, false);
  weights.elem = weights.embedding.elem;
  for (std::uint32_t layer = 0; layer < config.n_layers; ++layer)
    weights.layers.push_back(load_layer(loader, config, layer));
  if (config.learned_positions > 0)
    weights.positions =
        loader.linear("model.embed_positions", config.learned_positions, config.hidden_size, false);
  if (!config.norms_of_sums) weights.norm = load_norm(loader, config, "model.norm", {config.hidden_size});
  const bool has_head = loader.has("lm_head.weight");
  weights.tied = !has_head || config.tied_embeddings.value_or(false);
  if (!has_head && config.tied_embeddings == false)
    weights.notes.push_back(
        "the checkpoint has no lm_head.weight, so the embedding is used, though config.json does not tie "
        "them");
  weights.head = weights.tied ? weights.embedding
                              : loader.linear("lm_head", config.vocab_size, config.hidden_size, false);
  check_unused(checkpoint, config, loader, weights.notes);
  return weights;
}

}  // namespace kvsim::model
