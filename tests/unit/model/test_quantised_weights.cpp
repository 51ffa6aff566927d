// Checkpoints in 8 and 4 bits beside what transformers dequantises them to
// (tests/golden/quantised/make_quantised.py).
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/base/read_file.hpp"
#include "tests/support/source_folder.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/scaled_floats.hpp"

namespace kvsim::model::test_quantised_weights {
namespace {

using Catch::Matchers::Contains;

struct Opened {
  explicit Opened(const std::string& folder)
      : config(load_model_config(folder)), checkpoint(folder), weights(load_weights(checkpoint, config)) {}

  std::vector<float> logits() const {
    const std::vector<std::int32_t> tokens{5, 17, 200, 31, 7, 99, 250, 3, 12, 64, 128, 31};
    cpu::CpuRun run(config, weights, {tokens.size(), Elem::f32, 2});
    RunObserver nobody;
    run.forward(tokens, nobody);
    return run.logits(tokens.size());
  }

  ModelConfig config;
  Checkpoint checkpoint;
  Weights weights;
};

std::string golden(const std::string& name) {
  return test::source_folder() + "/tests/golden/quantised/" + name;
}

std::vector<const Linear*> matrices(const LayerWeights& layer) {
  std::vector<const Linear*> all{&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down};
  if (layer.latent) {
    all.insert(all.end(), {&layer.latent->down_q, &layer.latent->q, &layer.latent->down_kv});
    for (const Linear& keys : layer.latent->keys) all.push_back(&keys);
    for (const Linear& values : layer.latent->values) all.push_back(&values);
  }
  if (!layer.experts) return all;
  for (const GatedMlp& expert : layer.experts->experts)
    all.insert(all.end(), {&expert.gate, &expert.up, &expert.down});
  if (const auto& shared = layer.experts->shared)
    all.insert(all.end(), {&shared->gate, &shared->up, &shared->down});
  return all;
}

/// A copy of a golden folder in which `old` is `fresh`, of the same length, in a file.
std::string problem(const std::string& name, const std::string& file, const std::string& old,
                    const std::string& fresh) {
  const test::Scratch scratch;
  const std::string folder = scratch.file("model");
  std::filesystem::create_directory(folder);
  for (const char* one : {"config.json", "model.safetensors"}) {
    std::string bytes = read_regular_file(golden(name) + "/" + one, 1 << 20);
    if (file == one) {
      const std::size_t at = bytes.find(old);
      REQUIRE(at != std::string::npos);
      REQUIRE((file == "config.json" || old.size() == fresh.size()));
      bytes.replace(at, old.size(), fresh);
    }
    std::ofstream(folder + "/" + one, std::ios::binary) << bytes;
  }
  try {
    const Opened opened(folder);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

std::string in_tensors(const std::string& name, const std::string& old, const std::string& fresh) {
  return problem(name, "model.safetensors", old, fresh);
}

}  // namespace

TEST_CASE("weights in 8 and 4 bits are the numbers that transformers dequantises them to", "[golden]") {
  for (const char* name : {"deepseek_v3_fp8", "llama_fp8_ragged", "llama_fp8_whole", "gpt_oss_mxfp4"}) {
    DYNAMIC_SECTION(name) {
      const Opened got(golden(name)), wanted(golden(name + std::string("/dequantised")));
      for (std::size_t layer = 0; layer < wanted.weights.layers.size(); ++layer) {
        const std::vector<const Linear*> ours = matrices(got.weights.layers[layer]),
                                         theirs = matrices(wanted.weights.layers[layer]);
        REQUIRE(ours.size() == theirs.size());
        for (std::size_t i = 0; i < ours.size(); ++i) {
          CHECK(ours[i]->transposed() == theirs[i]->transposed());
          CHECK(ours[i]->bias == theirs[i]->bias);
        }
      }
      const std::vector<float> logits = got.logits(), expected = wanted.logits();
      REQUIRE(logits.size() == expected.size());
      double largest = 0;
      for (std::size_t i = 0; i < logits.size(); ++i)
        largest = std::max(largest, std::abs(double{logits[i]} - double{expected[i]}));
      CHECK(largest <= (got.config.experts.biased ? 1e-5 : 0));  // packed weights add up in another order
    }
  }
}

TEST_CASE("numbers of e4m3, worked by hand") {
  CHECK(widen_e4m3(0x00) == 0);
  CHECK(widen_e4m3(0x01) == 0x1p-9F);  // the least subnormal
  CHECK(widen_e4m3(0x08) == 0x1p-6F);  // the least that is not
  CHECK(widen_e4m3(0x38) == 1);
  CHECK(widen_e4m3(0xc5) == -3.25F);  // 2 * 1.625
  CHECK(widen_e4m3(0x7e) == 448);     // the largest
  CHECK(std::isnan(widen_e4m3(0x7f)));
  CHECK(std::isnan(widen_e4m3(0xff)));
  for (int bits = 0; bits < 0x7f; ++bits)
    CHECK(widen_e4m3(static_cast<std::uint8_t>(bits + 128)) == -widen_e4m3(static_cast<std::uint8_t>(bits)));
}

TEST_CASE("blocks may be narrower at the end of rows and columns") {
  // 3 x 5 ones and twos in blocks of 2 x 3.
  std::vector<std::byte> numbers(15, std::byte{0x38});
  numbers[14] = std::byte{0x40};
  const std::vector<float> scales{1, 2, 3, 4};
  const std::vector<std::uint16_t> rows = scaled_rows({numbers, 5, 2, 3, scales});
  std::vector<float> got;
  for (const std::uint16_t bits : rows) got.push_back(widen_bf16(bits));
  CHECK(got == std::vector<float>{1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 8});
}

TEST_CASE("what is wrong with quantised weights is said") {
  CHECK_THAT(in_tensors("deepseek_v3_fp8", "o_proj.weight_scale_inv", "o_proj.weight_scale_one"),
             Contains("\"model.layers.0.self_attn.o_proj.weight_scale_inv\" is missing"));
  CHECK_THAT(
      problem("deepseek_v3_fp8", "config.json", "\"quant_method\": \"fp8\"", "\"quant_method\": \"gptq\""),
      Contains("quantised by \"gptq\" are not supported") && Contains("fp8 and mxfp4"));
  CHECK_THAT(problem("deepseek_v3_fp8", "config.json", "\"fmt\": \"e4m3\"", "\"fmt\": \"e5m2\""),
             Contains("only e4m3"));
  CHECK_THAT(
      problem("deepseek_v3_fp8", "config.json", "\"quant_method\": \"fp8\"", "\"quant_method\": \"mxfp4\""),
      Contains("in 8 bits") && Contains("method fp8"));
  // Blocks of another size need another number of scales.
  CHECK_THAT(problem("llama_fp8_ragged", "config.json", "      24,\n", "      12,\n"),
             Contains("scale_inv") && Contains("but config.json asks for"));
  CHECK_THAT(problem("llama_fp8_ragged", "config.json", "\"weight_block_size\"", "\"block_size\""),
             Contains("scale_inv") && Contains("but config.json asks for [1, 1]"));
  CHECK_THAT(in_tensors("gpt_oss_mxfp4", "down_proj_scales", "down_proj_powers"),
             Contains("down_proj_scales\" is missing"));
  CHECK_THAT(in_tensors("gpt_oss_mxfp4", "{\"dtype\":\"U8\"", "{\"dtype\":\"I8\""), Contains("dtype I8"));
  CHECK_THAT(in_tensors("gpt_oss_mxfp4", "[4,64,1,16]", "[4,64,16,1]"), Contains("asks for [4, 64, 1, 16]"));
}

}  // namespace kvsim::model::test_quantised_weights
