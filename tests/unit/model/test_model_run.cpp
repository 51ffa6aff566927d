#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/rotary.hpp"
#include "tests/unit/model/golden_run.hpp"

namespace kvsim::model::test_model_run {
namespace {

Run run(const GoldenCheckpoint& golden, std::uint64_t chunk, unsigned threads, Elem elem = Elem::f32) {
  cpu::CpuRun model(golden.config, golden.weights, {golden.tokens().size(), elem, threads});
  return record(model, golden, chunk);
}

/// Bound on the relative difference. Both sides compute in float: the longrope model magnifies rounding most,
/// and transformers' own float result differs from its double result by 0.8e-6.
double relative_bound(const std::string& variant) {
  return variant.starts_with("phi3_longrope") ? 1.5e-6 : 1e-6;
}

void check_close(const std::string& stage, std::span<const float> got, const std::vector<float>& expected,
                 double bound) {
  const Difference d = difference(got, expected);
  INFO(stage << ": largest difference " << d.largest << ", relative " << d.relative);
  CHECK(d.largest <= 1e-5);
  CHECK(d.relative <= bound);
}

}  // namespace

TEST_CASE("a run agrees with transformers at every stage", "[golden]") {
  for (const std::string& variant : golden_variants()) {
    DYNAMIC_SECTION(variant) {
      const GoldenCheckpoint golden(variant);
      const Run got = run(golden, golden.tokens().size(), 2);
      for (const auto& [stage, values] : stages(golden, got))
        check_close(stage, values, golden.expected(stage), relative_bound(variant));
    }
  }
}

TEST_CASE("Kimi K2 is DeepSeek V3 under another name") {
  GoldenCheckpoint golden("deepseek_v3_latent");
  const std::vector<float> expected = run(golden, 40, 2).logits;
  const std::string name = "\"model_type\": \"deepseek_v3\"";
  std::string json = golden.config.json;
  REQUIRE(json.find(name) != std::string::npos);
  golden.config = parse_model_config(
      json.replace(
          json.find(name), name.size(),
          "\"model_type\": \"kimi_k2\", \"auto_map\": {\"AutoModel\": \"modeling_deepseek.DeepseekV3Model\"}"),
      "config.json");
  CHECK(golden.config.model_type == "kimi_k2");
  CHECK(golden.config.needs_processor());
  CHECK(run(golden, 40, 2).logits == expected);
}

TEST_CASE("unrotating the keys gives them back") {
  for (const std::string& variant : golden_variants()) {
    const GoldenCheckpoint golden(variant);
    const std::uint64_t tokens = golden.tokens().size(), dim = golden.config.head_dim;
    Run got = run(golden, tokens, 2);
    for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
      const RopeConfig& rope = golden.config.rope_of(layer);
      const std::vector<float> frequencies = rope_frequencies(rope, tokens);
      const Rotary rotary{frequencies,
                          golden.config.interleaved ? RotaryLayout::interleaved : RotaryLayout::half_split,
                          rope.attention_factor, golden.config.latent.rank};
      std::vector<float>& keys = got.recorder.k[layer];
      for (std::uint32_t head = 0; head < golden.config.n_kv_heads; ++head)
        unrotate(rotary, 0, dim, std::span(keys).subspan(head * tokens * dim, tokens * dim));
      const std::string stage = "k_pre." + std::to_string(layer);
      check_close(variant + " " + stage, keys, golden.expected(stage), relative_bound(variant));
    }
  }
}

TEST_CASE("rounding to bf16 stays within transformers' own bf16 error") {
  for (const std::string& variant : golden_variants()) {
    const GoldenCheckpoint golden(variant);
    const Run got = run(golden, golden.tokens().size(), 2, Elem::bf16);
    for (const auto& [stage, values] : stages(golden, got)) {
      const double error = difference(values, golden.expected(stage)).relative;
      INFO(variant << " " << stage << ": " << error << ", transformers " << golden.bf16_error(stage));
      CHECK(error <= 1.5 * golden.bf16_error(stage));
    }
  }
}

TEST_CASE("one shot, chunks and token by token agree") {
  for (const std::string& variant : golden_variants()) {
    DYNAMIC_SECTION(variant) {
      const GoldenCheckpoint golden(variant);
      const Run whole = run(golden, 40, 2);
      for (const std::uint64_t chunk : {1, 7, 39}) {
        const Run parts = run(golden, chunk, 2);
        for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
          CHECK(difference(parts.recorder.k[layer], whole.recorder.k[layer]).relative <= 1e-6);
          CHECK(difference(parts.recorder.v[layer], whole.recorder.v[layer]).relative <= 1e-6);
          CHECK(difference(parts.recorder.rows[layer], whole.recorder.rows[layer]).largest <= 1e-5);
        }
        CHECK(difference(parts.logits, whole.logits).largest <= 1e-4);
      }
    }
  }
}

TEST_CASE("the number of threads changes no bit") {
  for (const char* variant : {"llama_tied", "qwen3_qk_norm", "mistral_window"}) {
    const GoldenCheckpoint golden(variant);
    const Run one = run(golden, 16, 1);
    for (const unsigned threads : {2U, 8U}) {
      const Run many = run(golden, 16, threads);
      CHECK((many.logits == one.logits));
      CHECK((many.recorder.q == one.recorder.q));
      CHECK((many.recorder.k == one.recorder.k));
      CHECK((many.recorder.v == one.recorder.v));
      CHECK((many.recorder.rows == one.recorder.rows));
      CHECK((many.recorder.out == one.recorder.out));
    }
  }
}

TEST_CASE("the observer receives the values that attention used, also in 16 bits") {
  for (const Elem elem : {Elem::f32, Elem::bf16, Elem::f16}) {
    const GoldenCheckpoint golden("mistral_window");
    const ModelConfig& config = golden.config;
    const Run got = run(golden, 16, 2, elem);
    const std::uint64_t tokens = 40, dim = config.head_dim, window = 7;
    double worst = 0;
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer) {
      for (const float x : got.recorder.k[layer]) {
        float stored = 0;
        std::uint32_t bytes = 0;
        narrow(elem, &x, 1, &bytes);
        widen(elem, &bytes, 1, &stored);
        REQUIRE(stored == x);  // storing them loses nothing
      }
      for (std::uint64_t head = 0; head < config.n_heads; ++head) {
        const float* q = got.recorder.q[layer].data() + head * tokens * dim;
        const float* k = got.recorder.k[layer].data() + head / 2 * tokens * dim;
        for (std::uint64_t t = 0; t < tokens; ++t) {
          const std::uint64_t first = t + 1 > window ? t + 1 - window : 0;
          std::vector<double> p(t + 1 - first);
          for (std::uint64_t j = first; j <= t; ++j) {
            const double dot = std::inner_product(q + t * dim, q + (t + 1) * dim, k + j * dim, 0.0);
            p[j - first] = std::exp(dot / 4);  // sqrt(16)
          }
          const double sum = std::accumulate(p.begin(), p.end(), 0.0);
          const float* row = got.recorder.rows[layer].data() + (head * tokens + t) * tokens;
          for (std::uint64_t j = 0; j < tokens; ++j) {
            const double expected = j < first || j > t ? 0 : p[j - first] / sum;
            worst = std::max(worst, std::abs(expected - double{row[j]}));
          }
        }
      }
    }
    INFO(elem_name(elem));
    CHECK(worst <= 1e-5);
  }
}

TEST_CASE("weights must be those of the config") {
  const GoldenCheckpoint golden("llama_tied");
  const auto load = [&](const auto& change) {
    ModelConfig config = golden.config;
    change(config);
    return load_weights(golden.checkpoint, config);
  };
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(load([](ModelConfig& c) { c.hidden_size = 32; }),
                    Contains("but config.json asks for [257, 32]"));
  CHECK_THROWS_WITH(load([](ModelConfig& c) { c.n_layers = 3; }),
                    Contains("\"model.layers.2.") && Contains("missing"));
  CHECK_THROWS_WITH(load([](ModelConfig& c) { c.qkv_bias = true; }),
                    Contains("q_proj.bias") && Contains("missing"));
  const Weights headless = load([](ModelConfig& c) { c.tied_embeddings = false; });
  REQUIRE((headless.tied && headless.notes.size() == 1));
  CHECK_THAT(headless.notes[0], Contains("no lm_head.weight"));
  CHECK(load([](ModelConfig& c) { c.tied_embeddings.reset(); }).tied);
  // A shallower model is another one.
  CHECK_THROWS_WITH(load([](ModelConfig& c) { c.n_layers = 1; }),
                    Contains("model.layers.1.") && Contains("model of 1 layers has no such tensor") &&
                        Contains("do not belong together"));
  // A tensor inside a layer that the config does not know belongs to another model.
  const GoldenCheckpoint biased("llama_attention_bias");
  ModelConfig config = biased.config;
  config.qkv_bias = false;
  CHECK_THROWS_WITH(load_weights(biased.checkpoint, config),
                    Contains("_proj.bias") && Contains("no such tensor"));
}

TEST_CASE("fused tensors are checked and read in place") {
  const GoldenCheckpoint golden("phi3_partial_rotary");
  const LayerWeights& layer = golden.weights.layers[1];
  const StoredTensor& qkv = golden.checkpoint.tensor("model.layers.1.self_attn.qkv_proj.weight");
  const StoredTensor& gate_up = golden.checkpoint.tensor("model.layers.1.mlp.gate_up_proj.weight");
  // Rows of 32 bf16 numbers: 32 of q, 16 of k, 16 of v; 48 of gate, then 48 of up.
  CHECK(layer.q.data == qkv.data.data());
  CHECK(layer.k.data == qkv.data.data() + 32 * 64);
  CHECK(layer.v.data == qkv.data.data() + 48 * 64);
  CHECK((layer.q.out == 32 && layer.k.out == 16 && layer.v.out == 16 && layer.v.in == 32));
  CHECK(layer.v.data + layer.v.out * 64 == qkv.data.data() + qkv.data.size());
  CHECK(layer.gate.data == gate_up.data.data());
  CHECK(layer.up.data == gate_up.data.data() + 48 * 64);
  CHECK(layer.up.data + layer.up.out * 64 == gate_up.data.data() + gate_up.data.size());

  const auto complaint = [&](const GoldenCheckpoint& of, const auto& change) -> std::string {
    ModelConfig config = of.config;
    change(config);
    try {
      load_weights(of.checkpoint, config);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      return error.what();
    }
    return "accepted";
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(complaint(golden, [](ModelConfig& c) { c.n_kv_heads = 1; }),
             Contains("qkv_proj") && Contains("shape [64, 32]") && Contains("asks for [48, 32]"));
  CHECK_THAT(complaint(golden, [](ModelConfig& c) { c.head_dim = 16; }),
             Contains("qkv_proj") && Contains("asks for [128, 32]"));
  CHECK_THAT(complaint(golden, [](ModelConfig& c) { c.intermediate_size = 47; }),
             Contains("gate_up_proj") && Contains("shape [96, 32]") && Contains("asks for [94, 32]"));
  CHECK_THAT(complaint(golden, [](ModelConfig& c) { c.fused_qkv = false; }),
             Contains("q_proj.weight") && Contains("missing"));
  CHECK_THAT(complaint(GoldenCheckpoint("llama_tied"), [](ModelConfig& c) { c.fused_qkv = true; }),
             Contains("qkv_proj.weight") && Contains("missing"));
}

TEST_CASE("a cache beyond any memory is refused, not attempted") {
  const GoldenCheckpoint golden("llama_tied");
  for (const std::uint64_t capacity : {std::uint64_t{1} << 44, std::uint64_t{1} << 52})
    CHECK_THROWS_WITH(cpu::CpuRun(golden.config, golden.weights, {capacity, Elem::f32, 1}),
                      Catch::Matchers::Contains("iB, this machine has"));

  // Keys and values take nine tenths of the memory; column sums, a quarter of that, exceed it.
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  const ModelConfig& config = golden.config;
  const double of_token = 2.0 * sizeof(float) * config.n_layers * config.n_kv_heads * config.head_dim;
  REQUIRE(4 * 2 * config.n_heads == config.n_kv_heads * config.head_dim);
  RunOptions options{static_cast<std::uint64_t>(0.9 * memory / of_token), Elem::f32, 1};
  options.counts_columns = true;
  CHECK_THROWS_WITH(cpu::CpuRun(golden.config, golden.weights, options),
                    Catch::Matchers::Contains("with column statistics needs"));
}

}  // namespace kvsim::model::test_model_run
