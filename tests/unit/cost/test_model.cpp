#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost::test_model {
namespace {

using Catch::Contains;

std::string rounded(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

/// A config.json of seven keys, one of which may be replaced or added.
std::string config(const std::string& key = {}, const std::string& value = {}) {
  const std::pair<const char*, const char*> kKeys[]{
      {"model_type", "\"llama\""}, {"hidden_size", "64"},        {"intermediate_size", "96"},
      {"num_hidden_layers", "3"},  {"num_attention_heads", "8"}, {"num_key_value_heads", "2"},
      {"vocab_size", "1000"}};
  std::string text = "{", separator;
  bool replaced = false;
  for (const auto& [name, old] : kKeys) {
    const bool here = key == name;
    replaced |= here;
    if (here && value.empty()) continue;
    text += separator + "\"" + name + "\": " + (here ? value : old);
    separator = ", ";
  }
  if (!replaced && !key.empty()) text += separator + "\"" + key + "\": " + value;
  return text + "}";
}

void refuses(const std::string& text, const std::string& message) {
  CAPTURE(text);
  CHECK_THROWS_WITH(parse_model(text, "a.json"), Contains(message) && Contains("a.json"));
  try {
    parse_model(text, "a.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
  }
}

}  // namespace

TEST_CASE("parameters of a block are counted matrix by matrix", "[cost][model]") {
  const Model model = parse_model(config(), "a.json");
  // head_dim 64 / 8 = 8. Queries 64*64, keys and values 64*16 each, output 64*64: 10240. MLP 3*64*96 = 18432.
  CHECK(model.block_matrix_parameters() == 28'672);
  // Two norms of 64 in each of 3 blocks and one at the end: 448. Embedding and head 2 * 64000.
  CHECK(model.small_parameters() == 448);
  CHECK(model.embedding_parameters() == 128'000);
  CHECK(model.parameters() == 3 * 28'672 + 448 + 128'000);
  CHECK(model.streamed_parameters() == 3 * 28'672 + 64'000);
  CHECK(model.value_dim == 8);
  CHECK(model.max_context == 2048);  // of the class, where the file does not say
}

TEST_CASE("biases and norms over heads are counted where a family has them", "[cost][model]") {
  const auto small = [](const std::string& key, const std::string& value) {
    return parse_model(config(key, value), "a.json").small_parameters();
  };
  // Queries 64, keys 16, values 16 per block.
  CHECK(small("model_type", "\"qwen2\"") == 448 + 3 * 96);
  // Llama's attention_bias is on the output too: 64 more.
  CHECK(small("attention_bias", "true") == 448 + 3 * 160);
  // Gate and up 96 each, down 64.
  CHECK(small("mlp_bias", "true") == 448 + 3 * 256);
  // head_dim defaults to 128 in qwen3; one norm for queries, one for keys.
  CHECK(small("model_type", "\"qwen3\"") == 448 + 3 * 256);
}

TEST_CASE("OPT, GPT-NeoX and GPT-J are read by their own keys", "[cost][model]") {
  const Model opt = parse_model(
      R"({"model_type": "opt", "hidden_size": 64, "ffn_dim": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 30})",
      "opt");
  CHECK(opt.tied_embeddings);
  CHECK(opt.learned_positions == 32);
  // Four matrices of 64*64 with bias 64, two of 64*256 with biases 256 and 64, two norms of 2*64; a last norm
  // of 2*64; 100 + 32 rows of 64.
  CHECK(opt.parameters() == 2 * (4 * (64 * 64 + 64) + 2 * 64 * 256 + 320 + 256) + 128 + 132 * 64);
  // opt-350m's norms are the same number but for the last, which it does without.
  const Model behind = parse_model(
      R"({"model_type": "opt", "hidden_size": 64, "ffn_dim": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 30,
          "do_layer_norm_before": false})",
      "opt");
  CHECK(behind.parameters() == opt.parameters() - 128);
  // EleutherAI counts the parameters of pythia-160m without embeddings: 85,056,000.
  const Model pythia = parse_model(
      R"({"model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
          "num_attention_heads": 12, "vocab_size": 50304, "max_position_embeddings": 2048, "rotary_pct": 0.25,
          "hidden_act": "gelu", "rotary_emb_base": 10000, "use_parallel_residual": true,
          "tie_word_embeddings": false})",
      "pythia");
  CHECK(pythia.parameters() == 162'322'944);
  CHECK(pythia.parameters() - pythia.embedding_parameters() == 85'056'000);
  const Model gptj = parse_model(
      R"({"model_type": "gptj", "n_embd": 64, "n_inner": null, "n_layer": 2, "n_head": 4, "vocab_size": 100,
          "n_positions": 30})",
      "gptj");
  CHECK(gptj.ffn == 256);
  CHECK(gptj.max_context == 30);
  // One norm per block, biases in the MLP and at the head, embedding and head apart.
  CHECK(gptj.parameters() == 2 * (4 * 64 * 64 + 2 * 64 * 256 + 320 + 128) + 128 + 2 * 100 * 64 + 100);
}

TEST_CASE("Gemma's parameters agree with its publishers' counts", "[cost][model]") {
  // google/gemma-7b and google/gemma-2-9b: 8,537,680,896 and 9,241,705,984.
  CHECK(parse_model(R"({"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "vocab_size": 256000})",
                    "gemma")
            .parameters() == 8'537'680'896);
  const Model gemma2 =
      parse_model(R"({"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
      "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096, "vocab_size": 256000})",
                  "gemma2");
  CHECK(gemma2.parameters() == 9'241'705'984);
  // Every other layer slides, the first one to begin with.
  CHECK(gemma2.window_runs()[0] == WindowRun{1, 4096});
  CHECK(gemma2.window_runs()[41] == WindowRun{1, 0});
}

TEST_CASE("keys absent from a config.json have the defaults of transformers' class", "[cost][model]") {
  const auto with = [](const std::string& type, const std::string& key, const std::string& value) {
    std::string text = config("model_type", "\"" + type + "\"");
    const std::string heads = ", \"num_key_value_heads\": 2";
    text.erase(text.find(heads), heads.size());
    text.replace(text.find("_heads\": 8") + 9, 1, "16");
    if (!key.empty()) text.insert(1, "\"" + key + "\": " + value + ", ");
    return parse_model(text, "a.json");
  };
  CHECK(with("llama", "", "").kv_heads == 16);
  CHECK(with("mistral", "", "").kv_heads == 8);
  CHECK(with("mistral", "num_key_value_heads", "null").kv_heads == 16);
  CHECK(with("mistral", "", "").window == 4096);
  CHECK(with("mistral", "sliding_window", "null").window == 0);
  CHECK(with("mistral", "sliding_window", "7").window == 7);
  CHECK(with("llama", "", "").window == 0);
  CHECK(with("phi3", "", "").window == 0);
  CHECK(with("phi3", "sliding_window", "2047").window == 2047);
  CHECK_FALSE(with("llama", "", "").tied_embeddings);
  CHECK(with("llama", "tie_word_embeddings", "true").tied_embeddings);
  CHECK(with("llama", "head_dim", "24").head_dim == 24);
  CHECK(with("llama", "head_dim", "null").head_dim == 4);
  // Qwen slides only with use_sliding_window, and only from its first sliding layer on.
  const std::string qwen = R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 10,
      "sliding_window": 5)";
  CHECK(parse_model(qwen + "}", "q").window == 0);
  CHECK(parse_model(qwen + R"(, "use_sliding_window": true, "max_window_layers": 0})", "q").window == 5);
  CHECK(parse_model(qwen + R"(, "use_sliding_window": true, "max_window_layers": 2})", "q").window_runs() ==
        std::vector<WindowRun>{{2, 0}, {1, 5}});
}

TEST_CASE("an impossible config.json is refused with the key", "[cost][model]") {
  refuses(config("hidden_size"), "hidden_size");
  refuses(config("hidden_size", "0"), "hidden_size");
  refuses(config("hidden_size", "-4096"), "hidden_size");
  refuses(config("hidden_size", "64.5"), "hidden_size");
  refuses(config("hidden_size", "\"64\""), "hidden_size");
  refuses(config("hidden_size", "18446744073709551616"), "hidden_size");
  refuses(config("hidden_size", "60"), "head_dim");
  refuses(config("num_hidden_layers"), "num_hidden_layers");
  refuses(config("vocab_size", "null"), "vocab_size");
  refuses(config("num_key_value_heads", "3"), "num_key_value_heads");
  refuses(config("num_key_value_heads", "16"), "num_key_value_heads");
  refuses(config("num_key_value_heads", "0"), "num_key_value_heads");
  refuses(config("head_dim", "0"), "head_dim");
  refuses(config("num_local_experts", "8"), "num_local_experts");
  refuses(config("kv_lora_rank", "512"), "kv_lora_rank");
  refuses(R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
              "num_attention_heads": 8, "vocab_size": 1000, "sliding_window": -1})",
          "sliding_window");
  // Falcon, Persimmon and the like have llama's names for other blocks.
  refuses(R"({"model_type": "persimmon", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
              "num_attention_heads": 8, "vocab_size": 1000, "hidden_act": "relu2"})",
          "persimmon");
  refuses(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 8, "vocab_size": 1000})", "gpt2");
  refuses(config("vocab_size", "1000, \"vocab_size\": 1000"), "vocab_size");
  refuses("[]", "object");
  refuses("{\"hidden_size\": ", "a.json");
  refuses("", "a.json");
  refuses(config("num_hidden_layers", "4294967296"), "num_hidden_layers");
  refuses(config("model_type"), "model_type");
}

TEST_CASE("the catalogue's models have the sizes their publishers state", "[cost][model]") {
  struct Row {
    const char* name;
    double billions;  // as printed, with `digits` decimals
    int digits;
    const char *gigabytes, *gibibytes;  // of fp16 weights
    double kibibytes;                   // of an fp16 token
    std::uint64_t context;
  };
  const Row kRows[]{
      {"llama-2-7b", 6.738, 3, "13.48", "12.55", 512, 4096},
      {"llama-2-13b", 13.016, 3, "26.03", "24.24", 800, 4096},
      {"llama-2-70b", 68.977, 3, "137.95", "128.48", 320, 4096},
      {"llama-3-8b", 8.030, 3, "16.06", "14.96", 128, 8192},
      {"llama-3.1-8b", 8.030, 3, "16.06", "14.96", 128, 131'072},
      {"llama-3-70b", 70.554, 3, "141.11", "131.42", 320, 8192},
      {"llama-3.1-70b", 70.554, 3, "141.11", "131.42", 320, 131'072},
      {"mistral-7b-v0.2", 7.242, 3, "14.48", "13.49", 128, 32'768},
      {"phi-3-mini-4k", 3.821, 3, "7.64", "7.12", 384, 4096},
      {"opt-6.7b", 6.658, 3, "13.32", "12.40", 512, 2048},
      {"opt-13b", 12.853, 3, "25.71", "23.94", 800, 2048},
      {"opt-30b", 29.975, 3, "59.95", "55.83", 1344, 2048},
      {"opt-175b", 174.60, 2, "349.2", "325.2", 4608, 2048},
      {"gpt-j-6b", 6.051, 3, "12.10", "11.27", 448, 2048},
      {"yi-34b-200k", 34.389, 3, "68.78", "64.05", 240, 200'000},
      {"qwen2-7b", 7.616, 3, "15.23", "14.19", 56, 131'072},
      {"qwen2.5-7b", 7.616, 3, "15.23", "14.19", 56, 131'072},
      {"qwen3-0.6b", 0.596, 3, "1.19", "1.11", 112, 40'960},
      {"qwen3-1.7b", 1.721, 3, "3.44", "3.20", 112, 40'960},
      {"qwen3-4b", 4.022, 3, "8.04", "7.49", 144, 40'960},
      {"qwen3-8b", 8.191, 3, "16.38", "15.26", 144, 40'960},
      {"qwen3-14b", 14.768, 3, "29.54", "27.51", 160, 40'960},
      {"qwen3-32b", 32.762, 3, "65.52", "61.02", 256, 40'960},
      {"tinyllama-1.1b", 1.100, 3, "2.20", "2.05", 22, 2048},
      {"smollm2-135m", 0.1345, 4, "0.27", "0.25", 22.5, 8192},
      {"smollm2-360m", 0.3618, 4, "0.72", "0.67", 40, 8192},
  };
  const auto check = [](const Row& row, const Model& model) {
    CHECK(rounded(static_cast<double>(model.parameters()) / 1e9, row.digits) ==
          rounded(row.billions, row.digits));
    CHECK(static_cast<double>(full_cache_bytes(model, Layout{}, 1, 1)) / 1024 == row.kibibytes);
    CHECK(model.max_context == row.context);
    CHECK_THAT(model.source, Contains("parameters"));
  };
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    const Model model = find_model(row.name);
    check(row, model);
    const auto bytes = static_cast<double>(weight_bytes(model, Runtime{}, 1));
    const int decimals = row.billions > 100 ? 1 : 2;
    CHECK(rounded(bytes / 1e9, decimals) == row.gigabytes);
    CHECK(rounded(bytes / 0x1p30, decimals) == row.gibibytes);
  }
  // Models of today: weights are stored in what their files say, and experts are not all read.
  const Row kServed[]{
      {"deepseek-v3", 671.0, 1, "", "", 68.625, 163'840},
      {"kimi-k2", 1026.4, 1, "", "", 68.625, 131'072},
      {"glm-4.7-flash", 29.9, 1, "", "", 52.875, 202'752},
      {"qwen3-30b-a3b", 30.5, 1, "", "", 96, 40'960},
      {"qwen3-235b-a22b", 235.1, 1, "", "", 188, 40'960},
      {"qwen3-coder-480b-a35b", 480.2, 1, "", "", 248, 262'144},
      {"qwen3-next-80b-a3b", 79.7, 1, "", "", 24, 262'144},
      {"gpt-oss-20b", 20.91, 2, "", "", 48, 131'072},
      {"gpt-oss-120b", 116.83, 2, "", "", 72, 131'072},
      {"mixtral-8x7b", 46.7, 1, "", "", 128, 32'768},
      {"glm-4.5", 352.8, 1, "", "", 368, 131'072},
      {"glm-4.5-air", 106.9, 1, "", "", 184, 131'072},
      {"minimax-m2", 228.7, 1, "", "", 248, 196'608},
      {"gemma-2-9b", 9.24, 2, "", "", 336, 8192},
      {"gemma-3-12b", 11.8, 1, "", "", 384, 131'072},
      {"gemma-3-27b", 27.0, 1, "", "", 496, 131'072},
      {"mistral-small-24b", 23.6, 1, "", "", 160, 32'768},
      {"phi-4", 14.7, 1, "", "", 200, 16'384},
      {"qwen2.5-72b", 72.7, 1, "", "", 320, 32'768},
      {"smollm3-3b", 3.08, 2, "", "", 72, 65'536},
      {"nemotron-3-nano-30b-a3b", 31.6, 1, "", "", 6, 262'144},
      {"falcon-h1-34b", 33.6, 1, "", "", 144, 262'144},
      {"yoco-3b", 3.4, 1, "", "", 4, 1'048'576},
  };
  for (const Row& row : kServed) {
    CAPTURE(row.name);
    check(row, find_model(row.name));
  }
  CHECK(known_models().size() == std::size(kRows) + std::size(kServed));
}

TEST_CASE("a decode step of Llama-3-8B streams 15.01 GB", "[cost][model]") {
  CHECK(rounded(static_cast<double>(find_model("llama-3-8b").streamed_parameters()) * 2 / 1e9, 2) == "15.01");
}

TEST_CASE("models are found by name, file or directory", "[cost][model]") {
  CHECK(find_model("Llama-3-8B").name == "llama-3-8b");
  CHECK_THROWS_WITH(find_model("lama-3-8b"), Contains("llama-3-8b") && Contains("config.json"));
  const std::string sample = std::string(KVSIM_SOURCE_DIR) + "/traces/sample/model";
  const Model model = find_model(sample);
  CHECK(model.name == sample + "/config.json");
  CHECK(model.layers == 4);
  CHECK(model.kv_heads == 4);
  CHECK(model.head_dim == 64);
  CHECK(model.parameters() == find_model(sample + "/config.json").parameters());
  CHECK_THROWS_AS(find_model(std::string(KVSIM_SOURCE_DIR) + "/traces/sample/prompts"), Error);
  CHECK(std::is_sorted(known_models().begin(), known_models().end(),
                       [](const Model& a, const Model& b) { return a.name < b.name; }));
}

TEST_CASE("a device's share of a model", "[cost][model]") {
  const Model model = find_model("llama-3-8b");
  const Model half = device_share(model, 2);
  CHECK(half.query_heads == 16);
  CHECK(half.kv_heads == 4);
  CHECK(half.ffn == 7168);
  CHECK(half.vocab == 64'128);
  CHECK(2 * half.block_matrix_parameters() == model.block_matrix_parameters());
  // Norms are on both devices: 65 of 4096.
  CHECK(2 * half.parameters() == model.parameters() + 65 * 4096);
  // Eight KV heads on sixteen devices: each is stored twice.
  CHECK(device_share(model, 16).kv_heads == 1);
  CHECK(device_share(model, 1).parameters() == model.parameters());
  CHECK_THROWS_WITH(device_share(model, 3), Contains("32 query heads"));
  CHECK_THROWS_AS(device_share(model, 0), Error);
}

}  // namespace kvsim::cost::test_model
