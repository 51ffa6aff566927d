// Checkpoints in 8 and 4 bits beside what transformers dequantises them to
// (tests/golden/quantised/make_quantised.py).
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "tests/support/source_folder.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/stored_weights.hpp"

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

struct Tensor {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

std::string safetensors(const Tensors& tensors) {
  boost::json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", boost::json::value_from(tensor.shape)},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = boost::json::serialize(header);
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

/// The notes of a copy of a golden folder whose tensors are changed, and `old` is `fresh` in its config.json;
/// or why it is refused.
template <class Change>
std::string notes(const std::string& name, const Change& change, const std::string& old,
                  const std::string& fresh) {
  const test::Scratch scratch;
  const std::string folder = scratch.file("model");
  std::filesystem::create_directory(folder);
  Tensors tensors;
  const Checkpoint checkpoint(golden(name));
  for (const auto& [tensor, stored] : checkpoint.tensors())
    tensors[tensor] = {stored.dtype, stored.shape,
                       std::string(reinterpret_cast<const char*>(stored.data.data()), stored.data.size())};
  change(tensors);
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << safetensors(tensors);
  std::string config = read_regular_file(golden(name) + "/config.json", 1 << 20);
  const std::size_t at = config.find(old);
  REQUIRE(at != std::string::npos);
  std::ofstream(folder + "/config.json") << config.replace(at, old.size(), fresh);
  try {
    std::string all;
    for (const std::string& note : Opened(folder).weights.notes) all += note + "\n";
    return all;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
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

TEST_CASE("a scale that is no number, and inputs that are no blocks of 32, are refused") {
  const std::string width = "\"intermediate_size\": 32", gate_up = "model.layers.1.mlp.experts.gate_up_proj_";
  const auto nothing = [](Tensors&) {};
  CHECK(notes("gpt_oss_mxfp4", nothing, width, width).empty());
  const auto no_number = [&](Tensors& tensors) { tensors.at(gate_up + "scales").bytes[5] = '\xff'; };
  CHECK_THAT(notes("gpt_oss_mxfp4", no_number, width, width),
             Contains("a scale is 255, which stands for no number") && Contains(gate_up + "scales"));
  // 40 inputs of the second matrix: one block of 32, and eight that no block has.
  const auto ragged = [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (name.find("experts.gate_up_proj_") == std::string::npos) continue;
      tensor.shape[1] = 80;
      tensor.bytes.resize(tensor.bytes.size() / 64 * 80);
    }
  };
  CHECK_THAT(notes("gpt_oss_mxfp4", ragged, width, "\"intermediate_size\": 40"),
             Contains("40 inputs are no whole number of blocks of 32") && Contains("down_proj_blocks"));
}

TEST_CASE("a layer that predicts further tokens is left out, and said") {
  const std::string further = "\"num_nextn_predict_layers\": ", one = further + "1";
  const auto third = [](Tensors& tensors) {
    tensors["model.layers.2.eh_proj.weight"] = {"BF16", {2, 2}, std::string(8, '\0')};
  };
  CHECK_THAT(notes("deepseek_v3_fp8", third, one, one),
             Contains("tensor \"model.layers.2.eh_proj.weight\" is not used"));
  CHECK_THAT(notes("deepseek_v3_fp8", third, one, further + "0"),
             Contains("model of 2 layers has no such tensor") && Contains("eh_proj"));
}

}  // namespace kvsim::model::test_quantised_weights
