// A trace describes RoPE completely: the first layer's keys and queries, unrotated by it, are the projections
// of normalized embeddings.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "tests/unit/model/golden_checkpoint.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/capture.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::model::test_unrotate {
namespace {

using trace::Tensor;

std::unique_ptr<trace::Source> captured(const test::Scratch& scratch, const std::string& model,
                                        const std::vector<std::int32_t>& tokens) {
  std::ofstream ids(scratch.file("ids.txt"));
  for (const std::int32_t id : tokens) ids << id << ' ';
  ids.close();
  capture::CaptureOptions options;
  options.model_dir = model;
  options.tokens_file = scratch.file("ids.txt");
  options.max_new_tokens = 0;
  options.threads = 2;
  options.elem = "f32";
  options.output = scratch.file("run.h5");
  Progress progress;
  capture::run_capture(options, progress);
  return trace::open_trace(options.output);
}

/// Rows of a head of the first layer, as stored and unrotated.
struct Rows {
  Rows(const trace::Source& source, Tensor tensor, std::uint32_t head)
      : stored(source.header().n_tokens() * source.header().model.head_dim) {
    source.read(tensor, 0, head, 0, source.header().n_tokens(), stored);
    unrotated = stored;
    unrotate(source.header().model.rotary(0), 0, source.header().model.head_dim, unrotated);
  }
  std::vector<float> stored, unrotated;
};

using Numbers = std::vector<double>;

void normalize(Numbers& x, const std::vector<float>& weight, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * static_cast<double>(weight[i]);
}

/// One head of a projection of `x`, before RoPE.
Numbers project(const Linear& linear, const Numbers& x, std::size_t head, std::size_t dim) {
  std::vector<float> scratch;
  Numbers out(dim);
  for (std::size_t c = 0; c < dim; ++c) {
    const std::size_t row = head * dim + c;
    const float* weights = linear.rows(row, 1, scratch);
    out[c] = linear.bias.empty() ? 0.0 : static_cast<double>(linear.bias[row]);
    for (std::size_t i = 0; i < x.size(); ++i) out[c] += static_cast<double>(weights[i]) * x[i];
  }
  return out;
}

double difference(std::span<const float> row, const Numbers& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(row[i]) - expected[i]));
  return largest;
}

}  // namespace

TEST_CASE("unrotated keys and queries equal the projections of the first layer") {
  const std::string variant = GENERATE(
      "llama_untied_f32", "llama_rope_llama3", "llama_rope_linear", "llama_rope_yarn", "qwen2_late_window",
      "qwen3_qk_norm", "mistral_window", "phi3_partial_rotary", "phi3_longrope_short", "phi3_longrope_long",
      "gemma3_two_rotations");
  const GoldenCheckpoint golden(variant);
  const test::Scratch scratch;
  const std::vector<std::int32_t> tokens = golden.tokens();
  const auto source = captured(scratch, golden.directory, tokens);
  const std::size_t dim = golden.config.head_dim;
  const LayerWeights& layer = golden.weights.layers[0];
  for (const Tensor tensor : {Tensor::key, Tensor::query}) {
    const bool is_key = tensor == Tensor::key;
    const std::uint32_t heads = is_key ? golden.config.n_kv_heads : golden.config.n_heads;
    double worst = 0, turned = 0;
    for (std::uint32_t head = 0; head < heads; ++head) {
      const Rows rows(*source, tensor, head);
      std::vector<float> scratch_row;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        const float* embedding =
            golden.weights.embedding.rows(static_cast<std::uint64_t>(tokens[t]), 1, scratch_row);
        Numbers x(embedding, embedding + golden.config.hidden_size);
        for (double& one : x) one *= static_cast<double>(golden.config.embedding_scale);
        normalize(x, layer.attention_norm, golden.config.norm_eps);
        Numbers expected = project(is_key ? layer.k : layer.q, x, head, dim);
        if (golden.config.qk_norm)
          normalize(expected, is_key ? layer.k_norm : layer.q_norm, golden.config.norm_eps);
        worst = std::max(worst, difference(std::span(rows.unrotated).subspan(t * dim, dim), expected));
        turned = std::max(turned, difference(std::span(rows.stored).subspan(t * dim, dim), expected));
      }
    }
    CHECK(worst < 1e-5);
    CHECK(turned > 0.1);
  }
}

TEST_CASE("the sample model's first layer gives a token the same unrotated key at every position") {
  const test::Scratch scratch;
  std::vector<std::int32_t> tokens(900);
  for (std::size_t t = 0; t < tokens.size(); ++t) tokens[t] = 100 + static_cast<std::int32_t>(t % 3);
  const auto source = captured(scratch, std::string(KVSIM_SOURCE_DIR) + "/traces/sample/model", tokens);
  const trace::Model& model = source->header().model;
  const std::size_t dim = model.head_dim;
  for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
    const Rows rows(*source, Tensor::key, head);
    double unrotated = 0, stored = 0;
    for (std::size_t t = 3; t < tokens.size(); ++t) {
      for (std::size_t i = 0; i < dim; ++i) {
        const auto gap = [&](const std::vector<float>& r) {
          return std::abs(static_cast<double>(r[t * dim + i]) - static_cast<double>(r[t % 3 * dim + i]));
        };
        unrotated = std::max(unrotated, gap(rows.unrotated));
        stored = std::max(stored, gap(rows.stored));
      }
    }
    CHECK(unrotated < 1e-4);
    CHECK(stored > 1);
  }
}

}  // namespace kvsim::model::test_unrotate
