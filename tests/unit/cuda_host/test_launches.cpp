// Counts what the device is told to do. A step that generates one token is bound by these calls, and a block
// of queries of a prompt should be few and large products.
#include <catch2/catch.hpp>

#include "host_cuda.hpp"
#include "tests/unit/model/golden_run.hpp"
#include "traces/model/cuda/cuda_run.hpp"

namespace kvsim::model {
namespace {

using host_cuda::Told;

struct Quiet : RunObserver {
  bool wants_tensors() const override { return false; }
};

}  // namespace

TEST_CASE("the calls of a step that generates one token") {
  const GoldenCheckpoint golden("llama_tied");
  REQUIRE(golden.config.n_heads > golden.config.n_kv_heads);
  const std::vector<std::int32_t> tokens = golden.tokens();
  const auto model = cuda::open_cuda_run(0, golden.config, golden.weights, {.capacity = tokens.size()});
  Quiet quiet;
  model->forward(std::span(tokens).first(20), quiet);
  const Told before = host_cuda::told();
  model->forward(std::span(tokens).subspan(20, 1), quiet);
  const Told step = host_cuda::told() - before;
  // A layer: products for q, k, v, scores, attended values, o, gate, up, down; kernels for two norms, three
  // divisions into heads, softmax, SwiGLU. A pass: the tokens and two tables of angles are copied, and the
  // embeddings gathered.
  const std::size_t layers = golden.config.n_layers;
  CHECK(step.products == 9 * layers);
  CHECK(step.kernels == 7 * layers + 1);
  CHECK(step.copies == 3);
}

}  // namespace kvsim::model
