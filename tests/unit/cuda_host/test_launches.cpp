// Counts what the device is told to do. A step that generates one token is bound by these calls, and a block
// of queries of a prompt should be few and large products.
#include <catch2/catch.hpp>

#include "host_cuda.hpp"
#include "tests/unit/cuda/on_device.hpp"
#include "tests/unit/model/golden_run.hpp"
#include "traces/model/cuda/cuda_run.hpp"
#include "traces/model/cuda/device_attention.hpp"

namespace kvsim::model {
namespace {

using host_cuda::Told;

struct Quiet : RunObserver {
  bool wants_tensors() const override { return false; }
};

/// Attention of `n` tokens after 400 earlier ones, in blocks of at most some ten.
struct Attended {
  std::uint64_t blocks = 0;
  Told told;

  Attended(std::uint32_t heads, std::uint32_t kv_heads, std::uint64_t n) {
    using namespace cuda;
    constexpr std::uint32_t kDim = 8;
    const std::uint64_t past = 400, capacity = past + n;
    const Stream stream;
    MatrixProduct product(stream);
    DeviceAttention<float> attention(heads, kDim, capacity,
                                     DeviceAttention<float>::bytes_of_block(heads, kDim, 10, capacity));
    const auto q = on_device(random_floats(heads * n * kDim, 1), stream),
               k = on_device(random_floats(kv_heads * capacity * kDim, 2), stream);
    const DeviceArray<float> out(n * heads * kDim, "out");
    const DeviceArray<double> sums(2 * heads * capacity, "sums");
    zero(sums.data(), sums.size() * sizeof(double), stream);
    const DeviceAttentionInput<float> input{heads, kv_heads, kDim,     -1,       past,
                                            n,     q.data(), k.data(), k.data(), capacity};
    const Told before = host_cuda::told();
    attention.attend(product, stream, input, out.data(), 0, [this](const AttentionRows&) { ++blocks; },
                     {sums.data(), sums.data() + heads * capacity, capacity});
    told = host_cuda::told() - before;
    stream.synchronize();
  }
};

}  // namespace

TEST_CASE("the calls of a block of queries, whatever the number of heads") {
  for (const auto& [heads, kv_heads] : {std::pair{1U, 1U}, {8U, 8U}, {8U, 2U}, {6U, 1U}}) {
    // Scores and attended values; softmax, column sums and the merging of heads; the queries of the block.
    const Attended several(heads, kv_heads, 40);
    CHECK(several.blocks >= 4);
    CHECK((several.told == Told{2 * several.blocks, 3 * several.blocks, several.blocks}));
    // All queries at once lie as they should; what a single one attends to does, too.
    CHECK((Attended(heads, kv_heads, 10).told == Told{2, 3, 0}));
    CHECK((Attended(heads, kv_heads, 1).told == Told{2, 2, 0}));
  }
}

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
