#include <catch2/catch.hpp>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/model/golden_gguf.hpp"
#include "tests/unit/model/golden_run.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/gguf_model.hpp"

namespace kvsim::model::test_gguf_model {
namespace {

using Catch::Matchers::Contains;

/// A file on disk, opened as a model.
struct Opened {
  explicit Opened(const GoldenGguf& file)
      : path(scratch.file("m.gguf")),
        bytes(write(path, file.bytes())),
        config(load_model_config(path)),
        checkpoint(path),
        weights(load_weights(checkpoint, config)) {}

  static std::string write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return bytes;
  }

  test::Scratch scratch;
  std::string path, bytes;
  ModelConfig config;
  Checkpoint checkpoint;
  Weights weights;
};

std::string problem(const GoldenGguf& file) {
  try {
    const Opened opened(file);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

Run run(const ModelConfig& config, const Weights& weights, const GoldenCheckpoint& golden) {
  cpu::CpuRun model(config, weights, {golden.tokens().size(), Elem::f32, 2});
  return record(model, golden, golden.tokens().size());
}

/// The golden Llama 4 has two layers; its file has them twice, of which only the last does not rotate.
void twice_the_layers(Weights& weights) {
  std::vector<LayerWeights>& layers = weights.layers;
  layers.insert(layers.end(), {layers[0], layers[1]});
  layers[1].q_norm = layers[1].k_norm = layers[0].q_norm;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("a GGUF file is the checkpoint it was made of, and runs as transformers does", "[golden]") {
  for (const std::string& variant : device_variants()) {
    if (variant.starts_with("mistral")) continue;  // its GGUF files are called llama and say no window
    DYNAMIC_SECTION(variant) {
      GoldenCheckpoint golden(variant);
      GoldenGguf file(golden);
      if (variant == "phi3_window")
        file.set("phi3.attention.sliding_window", test::entry("phi3.attention.sliding_window", 7U));
      const Opened opened(file);
      const ModelConfig &got = opened.config, &wanted = golden.config;
      CHECK(got.model_type == wanted.model_type);
      CHECK(got.n_layers == wanted.n_layers);
      CHECK(got.hidden_size == wanted.hidden_size);
      CHECK(got.intermediate_size == wanted.intermediate_size);
      CHECK(got.vocab_size == wanted.vocab_size);
      CHECK(got.n_heads == wanted.n_heads);
      CHECK(got.n_kv_heads == wanted.n_kv_heads);
      CHECK(got.head_dim == wanted.head_dim);
      CHECK(got.max_positions == wanted.max_positions);
      CHECK(got.norm_eps == wanted.norm_eps);
      CHECK(got.qkv_bias == wanted.qkv_bias);
      CHECK(got.output_bias == wanted.output_bias);
      CHECK(got.mlp_bias == wanted.mlp_bias);
      CHECK(got.qk_norm == wanted.qk_norm);
      CHECK(got.rope.rotary_dim == wanted.rope.rotary_dim);
      CHECK(got.rope.theta == wanted.rope.theta);
      CHECK(got.rope.attention_factor == Approx(wanted.rope.attention_factor).epsilon(1e-7));
      CHECK(got.eos == std::vector<std::int32_t>{2});
      CHECK(opened.weights.tied == golden.weights.tied);
      CHECK(opened.weights.elem == golden.weights.elem);
      if (got.model_type == "qwen2") {
        // The files say no window, so the golden's does not count.
        golden.config.layer_window = {-1, -1};
      } else {
        CHECK(got.layer_window == wanted.layer_window);
      }

      REQUIRE(opened.checkpoint.tensors().size() == golden.checkpoint.tensors().size());
      for (const auto& [name, tensor] : golden.checkpoint.tensors()) {
        INFO(name);
        const StoredTensor& found = opened.checkpoint.tensor(name);
        CHECK(found.dtype == tensor.dtype);
        CHECK(found.shape == tensor.shape);
        CHECK(text_of(found.data) == text_of(tensor.data));
      }

      const Run ran = run(got, opened.weights, golden);
      if (wanted.rope.type != "llama3" && wanted.rope.type != "longrope")
        CHECK(ran.logits == run(golden.config, golden.weights, golden).logits);
      if (got.model_type == "qwen2") return;
      for (const auto& [stage, values] : stages(golden, ran)) {
        INFO(stage);
        const Difference d = difference(values, golden.expected(stage));
        CHECK(d.largest <= 1e-5);
        CHECK(d.relative <= (wanted.rope.type == "longrope" ? 1.5e-6 : 1e-6));  // as of the folder's run
      }
    }
  }
}

TEST_CASE("files that the package gguf writes run as the checkpoints they were made of", "[golden]") {
  const std::string folder = test::source_folder() + "/tests/golden/gguf/families/";  // make_families.py
  for (const char* variant :
       {"cohere2_rotated_windows", "cohere_qk_norm",          "deepseek_v2_latent",
        "deepseek_v3_latent",      "exaone4_rotated_windows", "gemma2_capped",
        "gemma3_two_rotations",    "gemma_scaled_embedding",  "glm4_four_norms",
        "glm_interleaved",         "gpt_neox_parallel",       "gpt_neox_serial",
        "gpt_oss_sinks",           "granite_multipliers",     "llama4_chunks",
        "mixtral_experts",         "olmo2_norms_behind",      "olmo3_yarn_in_full_layers",
        "olmoe_experts",           "qwen2_moe_shared",        "qwen3_moe_experts",
        "smollm3_unrotated_layer"}) {
    DYNAMIC_SECTION(variant) {
      const std::string path = folder + variant;
      GoldenCheckpoint golden(variant);
      golden.config = parse_model_config(read_regular_file(path + ".json", 1 << 20), path + ".json");
      // Files of qwen2moe have experts in every layer.
      if (golden.config.model_type == "qwen2_moe") golden.weights.layers[0] = golden.weights.layers[1];
      if (golden.config.model_type == "llama4_text") twice_the_layers(golden.weights);
      const ModelConfig config = load_model_config(path + ".gguf");
      const Checkpoint checkpoint(path + ".gguf");
      const Weights weights = load_weights(checkpoint, config);
      CHECK(config.model_type == golden.config.model_type);
      CHECK(config.layer_window == golden.config.layer_window);
      CHECK(config.max_positions == golden.config.max_positions);
      CHECK(config.apart == golden.config.apart);
      CHECK(config.chunked == golden.config.chunked);
      CHECK(config.temperature_floor == golden.config.temperature_floor);
      CHECK(config.temperature_scale == golden.config.temperature_scale);
      CHECK(weights.notes.empty());
      const std::vector<float> logits = run(config, weights, golden).logits,
                               expected = run(golden.config, golden.weights, golden).logits;
      // Absorbed matrices are 16-bit here and floats there, and some products add up in another order.
      if (config.latent.rank > 0)
        CHECK(difference(logits, expected).largest <= 1e-5);
      else
        CHECK(logits == expected);
    }
  }
}

TEST_CASE("files of GLM-4 have one matrix for queries, keys and values, or three") {
  const GoldenCheckpoint golden("glm_interleaved");
  GoldenGguf file(golden, "chatglm");
  const Opened opened(file);
  CHECK_FALSE(opened.config.fused_qkv);
  CHECK(run(opened.config, opened.weights, golden).logits ==
        run(golden.config, golden.weights, golden).logits);
}

TEST_CASE("what files of Llama 4 and OLMo say, and what they leave to llama.cpp") {
  const test::Scratch scratch;
  const GoldenCheckpoint golden("llama_tied");
  using Keys = std::map<std::string, std::string>;
  const auto config = [&](const std::string& architecture, const Keys& keys) {
    GoldenGguf file(golden, architecture);
    for (const auto& [name, entry] : keys) file.set(name, entry);
    const std::string path = scratch.file("m.gguf");
    Opened::write(path, file.bytes());
    return load_model_config(path);
  };
  const auto refused = [&](const std::string& architecture, const Keys& keys) -> std::string {
    try {
      config(architecture, keys);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      return error.what();
    }
    return "accepted";
  };
  const auto number = [](const std::string& name, std::uint32_t value) {
    return Keys::value_type(name, test::entry(name, value));
  };

  const Keys llama4{number("llama4.expert_count", 16), number("llama4.expert_used_count", 1),
                    number("llama4.expert_feed_forward_length", 24),
                    number("llama4.interleave_moe_layer_step", 2)};
  const ModelConfig scout = config("llama4", llama4);
  CHECK(scout.experts.width == 24);
  CHECK(scout.experts.shared_width == 24);
  CHECK(scout.intermediate_size == golden.config.intermediate_size);
  CHECK(scout.kinds.size() == 2);
  CHECK(scout.bare_qk_norm);
  CHECK(scout.layer_window == std::vector<std::int32_t>{8192, 8192});
  Keys maverick = llama4;
  maverick["llama4.expert_count"] = test::entry("llama4.expert_count", 128U);
  CHECK_FALSE(config("llama4", maverick).bare_qk_norm);
  for (const auto& [name, entry] : llama4) {
    Keys without = llama4;
    without.erase(name);
    CHECK_THAT(refused("llama4", without), Contains(name) && Contains("is missing"));
  }
  for (const char* name : {"llama4.attention.sliding_window", "llama4.attention.temperature_length"}) {
    Keys more = llama4;
    more.insert(number(name, 64));
    CHECK_THAT(refused("llama4", more), Contains(name) && Contains("may change"));
  }

  const auto window = number("olmo2.attention.sliding_window", 7);
  CHECK(config("olmo2", {number("olmo2.attention.sliding_window", 0)}).model_type == "olmo2");
  CHECK(config("olmo2", {window}).model_type == "olmo3");
  CHECK(config("olmo2", {window}).layer_window == std::vector<std::int32_t>{7, 7});
  const std::string scaling = "olmo2.rope.scaling.", temperature = scaling + "yarn_attn_factor";
  Keys yarn{window, number(scaling + "original_context_length", 32)};
  yarn[scaling + "type"] = test::entry(scaling + "type", std::string("yarn"));
  yarn[scaling + "factor"] = test::entry(scaling + "factor", 8.0F);
  yarn[temperature] = test::entry(temperature, 1.2079442F);
  CHECK(refused("olmo2", yarn) == "accepted");
  yarn[temperature] = test::entry(temperature, 1.0F);
  CHECK_THAT(refused("olmo2", yarn), Contains(temperature) && Contains("follows from"));
}

TEST_CASE("quantised rows are widened, and those of Llama's q and k put back") {
  const GoldenCheckpoint golden("llama_tied");  // 4 query and 2 KV heads of 16, 64 wide
  GoldenGguf file(golden);
  FileTensor k{{32, 64}, 8, {}};  // Q8_0
  std::vector<std::vector<float>> rows;
  for (int row = 0; row < 32; ++row) {
    rows.emplace_back();
    for (int block = 0; block < 2; ++block) {
      k.data += test::raw<std::uint16_t>(0x3800);  // 0.5
      for (int i = 0; i < 32; ++i) {
        const auto number = static_cast<std::int8_t>((row * 7 + block * 3 + i * 5) % 255 - 127);
        k.data += test::raw(number);
        rows.back().push_back(0.5F * static_cast<float>(number));
      }
    }
  }
  file.tensors["blk.1.attn_k.weight"] = k;
  file.tensors["blk.1.attn_v.weight"] = k;
  const Opened opened(file);
  std::vector<float> scratch;
  const auto row_of = [&](const Linear& linear, std::uint64_t row) {
    CHECK(linear.elem == Elem::f32);
    const float* from = linear.rows(row, 1, scratch);
    return std::vector<float>(from, from + 64);
  };
  const LayerWeights& layer = opened.weights.layers[1];
  // Of a head of 16 rows the file has components 0, 8, 1, 9, 2, ...
  CHECK(row_of(layer.k, 0) == rows[0]);
  CHECK(row_of(layer.k, 1) == rows[2]);
  CHECK(row_of(layer.k, 8) == rows[1]);
  CHECK(row_of(layer.k, 15) == rows[15]);
  CHECK(row_of(layer.k, 16) == rows[16]);
  CHECK(row_of(layer.k, 16 + 9) == rows[16 + 3]);
  for (std::uint64_t row = 0; row < 32; ++row) CHECK(row_of(layer.v, row) == rows[row]);
}

TEST_CASE("what is known of a GGUF model's origin") {
  const GoldenCheckpoint golden("llama_tied");
  const Opened opened(GoldenGguf{golden});
  CHECK_THAT(opened.config.json, Contains(R"("gguf":{"file":"m.gguf","version":3,"types":{"BF16":20}})"));
  Sha256 sha;
  sha.update(opened.bytes.data(), opened.bytes.size());
  CHECK(opened.checkpoint.sha256() == sha.hex());
}

TEST_CASE("GGUF models that are not computed as they should be are refused") {
  const GoldenCheckpoint llama("llama_tied"), qwen("qwen3_qk_norm"), phi("phi3_longrope_short");
  const auto with = [](const GoldenCheckpoint& golden, const std::string& key, const auto& value) {
    GoldenGguf file(golden);
    file.set(key, test::entry(key, value));
    return problem(file);
  };
  const auto without = [](const GoldenCheckpoint& golden, const std::string& key) {
    GoldenGguf file(golden);
    REQUIRE(file.keys.erase(key) + file.tensors.erase(key) == 1);
    return problem(file);
  };
  CHECK(problem(GoldenGguf(llama)) == "accepted");
  CHECK(problem(GoldenGguf(phi)) == "accepted");

  CHECK_THAT(with(llama, "general.architecture", std::string("falcon")),
             Contains("architecture \"falcon\" is not supported") &&
                 Contains("key \"general.architecture\"") &&
                 Contains("granite, llama, llama4, olmo2, olmoe, phi3, qwen2, qwen2moe"));
  CHECK_THAT(with(llama, "general.architecture", std::string("lama")),
             Contains("Did you mean llama or llama4?"));
  CHECK_THAT(with(llama, "general.type", std::string("adapter")), Contains("\"adapter\", not a model"));
  CHECK_THAT(with(llama, "split.count", 2U), Contains("one part of a model"));
  CHECK(with(llama, "split.count", 1U) == "accepted");
  CHECK_THAT(with(llama, "general.quantization_version", 1U), Contains("only blocks of version 2"));
  CHECK_THAT(with(llama, "llama.logit_scale", 2.0F),
             Contains("key \"llama.logit_scale\"") && Contains("may change what the model computes"));
  CHECK_THAT(with(llama, "llama.attention.sliding_window", 7U), Contains("may change"));
  CHECK_THAT(with(qwen, "qwen3.attention.sliding_window", 7U), Contains("may change"));
  CHECK(with(llama, "other.logit_scale", 2.0F) == "accepted");
  CHECK_THAT(with(llama, "llama.expert_count", 8U), Contains("expert_used_count\" is missing"));
  CHECK_THAT(with(qwen, "qwen3.expert_count", 8U), Contains("has no experts"));
  CHECK(with(llama, "llama.expert_count", 0U) == "accepted");
  CHECK(with(llama, "llama.tensor_data_layout", std::string("Meta AI original pth")) == "accepted");
  CHECK_THAT(with(llama, "llama.tensor_data_layout", std::string("other")), Contains("layout is not known"));
  CHECK_THAT(with(llama, "llama.attention.value_length", 8U), Contains("values of another length"));
  CHECK_THAT(with(llama, "llama.attention.key_length", 8U), Contains("attention.value_length"));
  CHECK_THAT(with(llama, "llama.attention.head_count", 0U), Contains("must not be 0"));
  CHECK_THAT(with(llama, "llama.attention.head_count", 3U), Contains("3 query heads cannot share 2"));
  CHECK_THAT(with(llama, "llama.rope.dimension_count", 8U), Contains("partial rotary embedding"));
  CHECK_THAT(with(llama, "llama.rope.dimension_count", 18U), Contains("more than a head has"));
  CHECK_THAT(with(llama, "llama.context_length", std::string("128")),
             Contains("of type text, expected an integer"));
  CHECK_THAT(with(llama, "llama.block_count", 3U), Contains("model.layers.2.") && Contains("is missing"));
  CHECK_THAT(with(llama, "llama.block_count", 0U), Contains("num_hidden_layers"));
  CHECK_THAT(with(llama, "llama.vocab_size", 256U), Contains("shape [257, 64]"));

  const std::string scaling = "llama.rope.scaling.";
  CHECK_THAT(with(llama, scaling + "type", std::string("dynamic")),
             Contains("\"dynamic\" is not supported") || Contains("is missing"));
  CHECK(with(llama, scaling + "type", std::string("none")) == "accepted");
  CHECK(with(llama, scaling + "factor", 2.0F) == "accepted");  // linear, as llama.cpp takes it
  CHECK_THAT(with(llama, scaling + "attn_factor", 2.0F), Contains("may change"));
  CHECK_THAT(with(llama, scaling + "yarn_ext_factor", 2.0F), Contains("may change"));
  CHECK_THAT(with(phi, "phi3.rope.scaling.type", std::string("yarn")), Contains("scaled in two ways"));
  CHECK_THAT(without(phi, "rope_factors_long.weight"), Contains("\"rope_factors_long.weight\" is missing"));

  CHECK_THAT(without(llama, "llama.attention.layer_norm_rms_epsilon"), Contains("is missing"));
  CHECK(without(llama, "llama.vocab_size") == "accepted");
  CHECK(without(llama, "llama.rope.dimension_count") == "accepted");
  CHECK_THAT(without(llama, "token_embd.weight"), Contains("\"token_embd.weight\" is missing"));
  CHECK_THAT(without(llama, "blk.0.ffn_gate.weight"), Contains("mlp.gate_proj.weight\" is missing"));

  const auto tensor = [](const std::string& name, const FileTensor& added) {
    const GoldenCheckpoint golden("llama_tied");
    GoldenGguf file(golden);
    file.tensors[name] = added;
    return problem(file);
  };
  const FileTensor four{{4}, 0, std::string(16, '\0')};
  CHECK_THAT(tensor("output_norm.bias", four), Contains("does not know this tensor"));
  CHECK_THAT(tensor("blk.0.attn_sinks.weight", four), Contains("no such tensor"));
  CHECK_THAT(tensor("blk.0", four), Contains("does not know this tensor"));
  CHECK_THAT(tensor("rope_freqs.weight", four), Contains("lists 4 factors for 8 rotating pairs"));
  CHECK_THAT(tensor("rope_freqs.weight", {{4}, 1, std::string(8, '\0')}), Contains("is not of type F32"));
  CHECK_THAT(tensor("blk.0.ffn_up.weight", {{1, 256}, 10, std::string(84, '\0')}),
             Contains("type Q2_K is not supported") && Contains("Q6_K"));
  CHECK_THAT(tensor("blk.0.attn_q.weight", {{12, 4}, 0, std::string(192, '\0')}),
             Contains("those of 4 heads"));
  CHECK_THAT(tensor("blk.0.attn_q.weight", {{0, 4}, 0, {}}), Contains("those of 4 heads"));
  CHECK_THAT(tensor("blk.0.attn_q.weight", {{}, 0, std::string(4, '\0')}), Contains("those of 4 heads"));
  CHECK_THAT(tensor("blk.0.attn_q.weight", {{64, 4}, 0, std::string(1024, '\0')}), Contains("shape [64, 4]"));
}

}  // namespace kvsim::model::test_gguf_model
