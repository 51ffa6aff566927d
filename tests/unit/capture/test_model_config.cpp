#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <numbers>

#include "sim/base/error.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/model_config.hpp"

namespace kvsim::capture {
namespace {

using Catch::Matchers::Contains;

/// A small sound config; `changes` are JSON members put last, `without` members left out.
std::string config_text(const std::string& changes = "", const std::vector<std::string>& without = {},
                        const std::string& type = "llama") {
  const std::vector<std::pair<std::string, std::string>> members{{"model_type", "\"" + type + "\""},
                                                                 {"hidden_size", "64"},
                                                                 {"intermediate_size", "96"},
                                                                 {"num_hidden_layers", "3"},
                                                                 {"num_attention_heads", "4"},
                                                                 {"num_key_value_heads", "2"},
                                                                 {"vocab_size", "257"},
                                                                 {"max_position_embeddings", "128"}};
  std::string text;
  for (const auto& [name, value] : members) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    text += (text.empty() ? "{\"" : ",\"") + name + "\":" + value;
  }
  return text + (changes.empty() ? "" : ",") + changes + "}";
}

ModelConfig parse(const std::string& changes = "", const std::vector<std::string>& without = {},
                  const std::string& type = "llama") {
  return parse_model_config(config_text(changes, without, type), "config.json");
}

std::string problem(const std::string& changes, const std::vector<std::string>& without = {},
                    const std::string& type = "llama") {
  try {
    parse(changes, without, type);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

const std::string kLlama3 =
    R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192)";

}  // namespace

TEST_CASE("absent fields have the defaults of their class") {
  const ModelConfig config = parse("", {"num_key_value_heads"});
  CHECK(config.n_kv_heads == 4);
  CHECK(config.head_dim == 16);
  CHECK(config.norm_eps == 1e-6);
  CHECK(config.rope.theta == 10000.0);
  CHECK(config.rope.type == "default");
  CHECK_FALSE(config.tied_embeddings.has_value());
  CHECK_FALSE(config.qkv_bias);
  CHECK_FALSE(config.output_bias);
  CHECK(config.eos.empty());
  CHECK(config.layer_window == std::vector<std::int32_t>{-1, -1, -1});
}

TEST_CASE("null counts as absent") {
  const ModelConfig config =
      parse(R"("head_dim":null,"rope_scaling":null,"eos_token_id":null,"quantization_config":null)");
  CHECK(config.head_dim == 16);
}

TEST_CASE("head_dim is read when it is there") {
  CHECK(parse(R"("head_dim":128)").head_dim == 128);
  CHECK_THAT(problem(R"("head_dim":17)"), Contains("even"));
  CHECK_THAT(problem(R"("head_dim":0)"), Contains("outside 1..1024"));
}

TEST_CASE("eos ids: one, several, none; generation_config.json has the last word") {
  CHECK(parse(R"("eos_token_id":2)").eos == std::vector<std::int32_t>{2});
  CHECK(parse(R"("eos_token_id":[2,7])").eos == std::vector<std::int32_t>{2, 7});
  CHECK_THAT(problem(R"("eos_token_id":257)"), Contains("outside 0..256"));
  CHECK_THAT(problem(R"("eos_token_id":"</s>")"), Contains("expected an integer"));

  const test::Scratch scratch;
  std::ofstream(scratch.file("config.json")) << config_text(R"("eos_token_id":2)");
  CHECK(load_model_config(scratch.file("")).eos == std::vector<std::int32_t>{2});
  std::ofstream(scratch.file("generation_config.json")) << R"({"eos_token_id":[3,4]})";
  CHECK(load_model_config(scratch.file("")).eos == std::vector<std::int32_t>{3, 4});
}

TEST_CASE("each family's biases and norms") {
  const ModelConfig llama = parse(R"("attention_bias":true,"mlp_bias":true)");
  CHECK((llama.qkv_bias && llama.output_bias && llama.mlp_bias && !llama.qk_norm));
  const ModelConfig qwen2 = parse("", {}, "qwen2");
  CHECK((qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm));
  const ModelConfig qwen3 = parse("", {}, "qwen3");
  CHECK((!qwen3.qkv_bias && !qwen3.output_bias && qwen3.qk_norm));
  CHECK_THAT(problem(R"("attention_bias":true)", {}, "mistral"), Contains("attention_bias"));
  CHECK_THAT(problem(R"("mlp_bias":true)", {}, "qwen2"), Contains("mlp_bias"));
}

TEST_CASE("sliding windows by family") {
  using Windows = std::vector<std::int32_t>;
  CHECK(parse(R"("sliding_window":7)", {}, "mistral").layer_window == Windows{7, 7, 7});
  CHECK(parse(R"("sliding_window":null)", {}, "mistral").layer_window == Windows{-1, -1, -1});
  // Qwen files name a window and do not use it.
  CHECK(parse(R"("sliding_window":7,"use_sliding_window":false,"max_window_layers":0)", {}, "qwen2")
            .layer_window == Windows{-1, -1, -1});
  CHECK(parse(R"("sliding_window":7,"use_sliding_window":true,"max_window_layers":2)", {}, "qwen2")
            .layer_window == Windows{-1, -1, 7});
  CHECK(
      parse(
          R"("sliding_window":7,"use_sliding_window":true,"layer_types":["sliding_attention","full_attention","sliding_attention"])",
          {}, "qwen3")
          .layer_window == Windows{7, -1, 7});
  CHECK_THAT(problem(R"("sliding_window":7,"use_sliding_window":true,"layer_types":["full_attention"])", {},
                     "qwen3"),
             Contains("lists 1 layers of 3"));
  CHECK_THAT(
      problem(
          R"("sliding_window":7,"use_sliding_window":true,"layer_types":["chunked","full_attention","full_attention"])",
          {}, "qwen3"),
      Contains("layer 0"));
  CHECK_THAT(problem(R"("sliding_window":7,"use_sliding_window":true)", {}, "qwen2"),
             Contains("max_window_layers"));
  CHECK_THAT(problem(R"("sliding_window":7)"), Contains("no sliding window"));
}

TEST_CASE("rope scaling in every spelling") {
  const RopeConfig old_name =
      parse(R"("rope_theta":500000,"rope_scaling":{"type":"linear","factor":4})").rope;
  CHECK((old_name.type == "linear" && old_name.factor == 4 && old_name.theta == 500000));
  const RopeConfig new_name = parse(R"("rope_scaling":{"rope_type":"linear","factor":4.0})").rope;
  CHECK((new_name.type == "linear" && new_name.factor == 4));
  const RopeConfig both = parse(R"("rope_scaling":{"type":"linear","rope_type":"linear","factor":2})").rope;
  CHECK(both.factor == 2);
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear","rope_type":"default","factor":2})"),
             Contains("disagree"));
  const RopeConfig v5 = parse("\"rope_parameters\":{\"rope_theta\":500000.0," + kLlama3 + "}").rope;
  CHECK((v5.type == "llama3" && v5.theta == 500000 && v5.original_max_positions == 8192));
  const RopeConfig v4 = parse("\"rope_theta\":500000.0,\"rope_scaling\":{" + kLlama3 + "}").rope;
  CHECK((v4.type == "llama3" && v4.high_freq_factor == 4));
  CHECK_THAT(problem(R"("rope_theta":1000,"rope_parameters":{"rope_theta":2000})"), Contains("differs"));
  CHECK_THAT(problem(R"("rope_scaling":{"rope_type":"default"},"rope_parameters":{"rope_theta":2000})"),
             Contains("both rope_parameters and rope_scaling"));
  CHECK_THAT(problem(R"("rope_parameters":{"full_attention":{"rope_theta":2000}})"),
             Contains("per layer type"));
}

TEST_CASE("rope scaling that is not supported is refused by name") {
  for (const char* type : {"dynamic", "yarn", "longrope", "su", "proportional"}) {
    CHECK_THAT(problem(std::string(R"("rope_scaling":{"rope_type":")") + type + "\",\"factor\":2}"),
               Contains(type));
  }
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear"})"), Contains("missing \"factor\""));
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear","factor":0.5})"), Contains("outside"));
  CHECK_THAT(
      problem(
          R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":64})"),
      Contains("smaller than high_freq_factor"));
}

TEST_CASE("what kvsim does not compute is refused by name") {
  CHECK_THAT(problem("", {}, "gemma2"), Contains("\"gemma2\"") && Contains("llama, mistral, qwen2, qwen3"));
  CHECK_THAT(problem("", {}, "lama"), Contains("Did you mean llama?"));
  CHECK_THAT(problem("", {"model_type"}), Contains("missing \"model_type\""));
  CHECK_THAT(problem(R"("quantization_config":{"bits":4})"), Contains("quantised"));
  CHECK_THAT(problem(R"("num_local_experts":8)"), Contains("mixture-of-experts"));
  CHECK_THAT(problem(R"("num_experts":8)"), Contains("mixture-of-experts"));
  CHECK_THAT(problem(R"("auto_map":{"AutoModel":"x.y"})"), Contains("own model code"));
  CHECK_THAT(problem(R"("hidden_act":"gelu")"), Contains("\"gelu\""));
  CHECK_THAT(problem(R"("partial_rotary_factor":0.5)"), Contains("partial rotary"));
  CHECK_THAT(problem(R"("rope_parameters":{"rope_theta":1e4,"partial_rotary_factor":0.5})"),
             Contains("partial rotary"));
}

TEST_CASE("shapes are bounded and consistent") {
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "vocab_size", "max_position_embeddings"}) {
    CHECK_THAT(problem("", {field}), Contains(std::string("missing \"") + field));
    for (const char* value :
         {"0", "-4", "4.0", "1e3", "\"4\"", "18446744073709551615", "99999999999999999999"}) {
      INFO(field << " = " << value);
      CHECK(problem(std::string("\"") + field + "\":" + value, {field}) != "accepted");
    }
  }
  CHECK_THAT(problem(R"("num_key_value_heads":3)", {"num_key_value_heads"}), Contains("evenly"));
  CHECK_THAT(problem(R"("hidden_size":66)", {"hidden_size"}), Contains("gives none"));
  CHECK_THAT(problem(R"("vocab_size":258)"), Contains("occurs twice"));
  CHECK_THAT(problem(R"("rms_norm_eps":"tiny")"), Contains("expected a number"));
  CHECK_THROWS_WITH(parse_model_config("[]", "config.json"), Contains("expected a JSON object"));
}

TEST_CASE("frequencies by hand") {
  // head_dim 4: exponents 0 and 1/2.
  RopeConfig rope;
  rope.theta = 100;
  CHECK(rope_frequencies(rope, 4) == std::vector<float>{1.0F, 0.1F});
  rope.type = "linear";
  rope.factor = 4;
  CHECK(rope_frequencies(rope, 4) == std::vector<float>{0.25F, 0.1F / 4});
}

TEST_CASE("llama3 scaling has three bands") {
  // Original context 32, low 1, high 4: wavelengths below 8 are kept, above 32 divided, between blended.
  RopeConfig rope;
  rope.type = "llama3";
  rope.theta = 10000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_positions = 32;
  const std::vector<float> f = rope_frequencies(rope, 16);  // plain: 10000^(-i/8) = 1, 0.316, 0.1, ...
  CHECK(f[0] == 1.0F);                                      // wavelength 6.28
  const double plain = std::pow(10000.0, -1.0 / 8), wavelength = 2 * std::numbers::pi / plain;  // 19.87
  const double keep = (32 / wavelength - 1) / 3;
  CHECK(f[1] == Approx((1 - keep) * plain / 8 + keep * plain).epsilon(1e-6));
  for (std::size_t i = 2; i < f.size(); ++i)  // 62.8 and longer
    CHECK(f[i] == Approx(std::pow(10000.0, -static_cast<double>(i) / 8) / 8).epsilon(1e-6));
}

}  // namespace kvsim::capture
