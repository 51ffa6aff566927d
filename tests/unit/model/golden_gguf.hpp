#pragma once
/// The golden checkpoints as GGUF files, as llama.cpp's converter writes them.
#include <cmath>
#include <map>
#include <numbers>

#include "tests/unit/model/gguf_bytes.hpp"
#include "tests/unit/model/golden_checkpoint.hpp"

namespace kvsim::model {

/// A tensor for a file: shape row-major.
struct FileTensor {
  std::vector<std::uint64_t> shape;
  std::uint32_t type = 0;
  std::string data;
};

inline std::string gguf_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> kNames{
      {"model.layers.", "blk."},           {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},       {"lm_head", "output"},
      {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},      {"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
      {"mlp.gate_up_proj", "ffn_up"},      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : kNames)
    if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

/// reshape(heads, 2, half, ...).swapaxes(1, 2) of the rows.
inline std::string interleave(const std::string& data, std::uint64_t rows, std::uint64_t heads) {
  const std::uint64_t half = rows / heads / 2, width = data.size() / rows;
  std::string out;
  for (std::uint64_t head = 0; head < heads; ++head)
    for (std::uint64_t i = 0; i < half; ++i)
      for (std::uint64_t part = 0; part < 2; ++part)
        out += data.substr(((head * 2 + part) * half + i) * width, width);
  return out;
}

struct GoldenGguf {
  explicit GoldenGguf(const GoldenCheckpoint& golden, const std::string& other_name = "")
      : architecture(other_name.empty() ? golden.config.model_type : other_name) {
    const ModelConfig& c = golden.config;
    const std::string a = architecture + ".";
    keys = {{a + "block_count", test::entry(a + "block_count", c.n_layers)},
            {a + "context_length",
             test::entry(a + "context_length", static_cast<std::uint32_t>(c.max_positions))},
            {a + "embedding_length", test::entry(a + "embedding_length", c.hidden_size)},
            {a + "feed_forward_length", test::entry(a + "feed_forward_length", c.intermediate_size)},
            {a + "attention.head_count", test::entry(a + "attention.head_count", c.n_heads)},
            {a + "attention.head_count_kv", test::entry(a + "attention.head_count_kv", c.n_kv_heads)},
            {a + "attention.key_length", test::entry(a + "attention.key_length", c.head_dim)},
            {a + "attention.value_length", test::entry(a + "attention.value_length", c.head_dim)},
            {a + "rope.dimension_count", test::entry(a + "rope.dimension_count", c.rope.rotary_dim)},
            {a + "rope.freq_base", test::entry(a + "rope.freq_base", static_cast<float>(c.rope.theta))},
            {a + "attention.layer_norm_rms_epsilon",
             test::entry(a + "attention.layer_norm_rms_epsilon", static_cast<float>(c.norm_eps))},
            {a + "vocab_size", test::entry(a + "vocab_size", c.vocab_size)},
            {"general.architecture", test::entry("general.architecture", architecture)},
            {"general.name", test::entry("general.name", "a golden model")},
            {"tokenizer.ggml.eos_token_id", test::entry("tokenizer.ggml.eos_token_id", 2U)}};
    static const std::map<std::string, std::uint32_t> kCodes{{"F32", 0}, {"F16", 1}, {"BF16", 30}};
    for (const auto& [name, tensor] : golden.checkpoint.tensors()) {
      std::string data(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
      const bool q = name.find(".q_proj.") != std::string::npos,
                 k = name.find(".k_proj.") != std::string::npos;
      if (architecture == "llama" && (q || k))
        data = interleave(data, tensor.shape[0], q ? c.n_heads : c.n_kv_heads);
      tensors[gguf_name(name)] = {tensor.shape, kCodes.at(tensor.dtype), data};
    }
    add_rope(c);
  }

  void set(const std::string& name, const std::string& entry) { keys[name] = entry; }
  void add_floats(const std::string& name, const std::vector<double>& values) {
    FileTensor tensor{{values.size()}, 0, {}};
    for (const double value : values) tensor.data += test::raw(static_cast<float>(value));
    tensors[name] = tensor;
  }

  std::string bytes() const {
    std::vector<std::string> entries, places;
    for (const auto& [name, entry] : keys) entries.push_back(entry);
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      data = test::padded(data);
      places.push_back(
          test::place(name, {tensor.shape.rbegin(), tensor.shape.rend()}, tensor.type, data.size()));
      data += tensor.data;
    }
    return test::gguf(entries, places, data);
  }

  std::string architecture;
  std::map<std::string, std::string> keys;
  std::map<std::string, FileTensor> tensors;

 private:
  void add_rope(const ModelConfig& c) {
    const RopeConfig& rope = c.rope;
    const std::string scaling = architecture + ".rope.scaling.";
    const auto original = static_cast<std::uint32_t>(rope.original_max_positions);
    if (rope.type == "linear" || rope.type == "yarn") {
      set(scaling + "type", test::entry(scaling + "type", rope.type));
      set(scaling + "factor", test::entry(scaling + "factor", static_cast<float>(rope.factor)));
    }
    if (rope.type == "yarn" || rope.type == "longrope")
      set(scaling + "original_context_length", test::entry(scaling + "original_context_length", original));
    if (rope.type == "yarn")
      set(scaling + "yarn_beta_fast",
          test::entry(scaling + "yarn_beta_fast", static_cast<float>(rope.beta_fast)));
    if (rope.type == "longrope") {
      const double stretched = static_cast<double>(c.max_positions) / original;
      set(scaling + "attn_factor",
          test::entry(scaling + "attn_factor",
                      static_cast<float>(std::sqrt(1 + std::log(stretched) / std::log(original)))));
      add_floats("rope_factors_short.weight", rope.short_factor);
      add_floats("rope_factors_long.weight", rope.long_factor);
    }
    if (rope.type == "llama3") {
      std::vector<double> divisors;
      for (std::uint32_t i = 0; i < rope.rotary_dim; i += 2) {
        const double wavelength =
            2 * std::numbers::pi * std::pow(rope.theta, double{1} * i / rope.rotary_dim);
        const double smooth =
            (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        divisors.push_back(wavelength < original / rope.high_freq_factor ? 1
                           : wavelength > original / rope.low_freq_factor
                               ? rope.factor
                               : 1 / ((1 - smooth) / rope.factor + smooth));
      }
      add_floats("rope_freqs.weight", divisors);
    }
  }
};

}  // namespace kvsim::model
