// Compares the model on a CUDA device with the model on the processor and with transformers.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "sim/base/error.hpp"
#include "tests/unit/model/golden_run.hpp"
#include "traces/model/cuda/cuda_run.hpp"
#include "traces/model/generation.hpp"

namespace kvsim::model {
namespace {

std::unique_ptr<ModelRun> on_device(const GoldenCheckpoint& golden, Elem compute, Elem elem) {
  return cuda::open_cuda_run(0, golden.config, golden.weights,
                             {.capacity = golden.tokens().size(), .elem = elem, .compute = compute});
}
Run run(const GoldenCheckpoint& golden, std::uint64_t chunk, Elem compute = Elem::f32) {
  return record(*on_device(golden, compute, compute), golden, chunk);
}
Run on_processor(const GoldenCheckpoint& golden, Elem elem = Elem::f32) {
  cpu::CpuRun model(golden.config, golden.weights, {golden.tokens().size(), elem, 2});
  return record(model, golden, golden.tokens().size());
}

/// Counts every pass.
struct Counter : RunObserver {
  bool counts_columns(std::uint64_t) const override { return true; }
};

/// Requests the attention rows from one position on.
struct Rows : RunObserver {
  explicit Rows(std::uint64_t first_in) : first(first_in) {}
  std::uint64_t first_attention_row() const override { return first; }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override {
    seen.push_back({layer, position, first_key, n_keys});
    values.emplace_back(p.begin(), p.end());
  }
  std::uint64_t first;
  std::vector<std::array<std::uint64_t, 4>> seen;
  std::vector<std::vector<float>> values;
};

}  // namespace

TEST_CASE("float on the device agrees with the processor and with transformers") {
  for (const std::string& variant : device_variants()) {
    DYNAMIC_SECTION(variant) {
      const GoldenCheckpoint golden(variant);
      const Run device = run(golden, golden.tokens().size());
      const auto expected = stages(golden, on_processor(golden));
      const auto got = stages(golden, device);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto& [stage, values] = got[i];
        const Difference from_golden = difference(values, golden.expected(stage));
        INFO(stage << ": largest " << from_golden.largest << ", relative " << from_golden.relative);
        CHECK(from_golden.largest <= 1e-5);
        CHECK(from_golden.relative <= 1e-5);
        CHECK(difference(values, expected[i].second).relative <= 1e-5);
      }
    }
  }
}

TEST_CASE("bf16 on the device stays within half again of transformers' own bf16 error") {
  for (const std::string& variant : device_variants()) {
    const GoldenCheckpoint golden(variant);
    const Run device = run(golden, golden.tokens().size(), Elem::bf16);
    for (const auto& [stage, values] : stages(golden, device)) {
      const double error = difference(values, golden.expected(stage)).relative;
      INFO(variant << " " << stage << ": " << error << ", transformers " << golden.bf16_error(stage));
      CHECK(error <= 1.5 * golden.bf16_error(stage));
    }
  }
}

TEST_CASE("on the device, one shot, chunks and token by token agree") {
  for (const char* variant : {"llama_attention_bias", "mistral_window", "qwen3_qk_norm"}) {
    DYNAMIC_SECTION(variant) {
      const GoldenCheckpoint golden(variant);
      const Run whole = run(golden, 40);
      for (const std::uint64_t chunk : {1, 7, 39}) {
        const Run parts = run(golden, chunk);
        for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
          CHECK(difference(parts.recorder.q[layer], whole.recorder.q[layer]).relative <= 1e-5);
          CHECK(difference(parts.recorder.k[layer], whole.recorder.k[layer]).relative <= 1e-5);
          CHECK(difference(parts.recorder.v[layer], whole.recorder.v[layer]).relative <= 1e-5);
          CHECK(difference(parts.recorder.rows[layer], whole.recorder.rows[layer]).largest <= 1e-5);
        }
        CHECK(difference(parts.logits, whole.logits).largest <= 1e-4);
      }
    }
  }
}

TEST_CASE("the same run on the device gives the same bits") {
  const GoldenCheckpoint golden("qwen2_late_window");
  for (const Elem compute : {Elem::f32, Elem::bf16}) {
    const Run one = run(golden, 16, compute), two = run(golden, 16, compute);
    CHECK((one.logits == two.logits));
    CHECK((one.recorder.q == two.recorder.q));
    CHECK((one.recorder.k == two.recorder.k));
    CHECK((one.recorder.v == two.recorder.v));
    CHECK((one.recorder.rows == two.recorder.rows));
    CHECK((one.recorder.out == two.recorder.out));
  }
}

TEST_CASE("a float run rounds what it caches to the trace's type") {
  const GoldenCheckpoint golden("mistral_window");
  for (const Elem elem : {Elem::bf16, Elem::f16}) {
    const Run got = record(*on_device(golden, Elem::f32, elem), golden, 16);
    const Run expected = on_processor(golden, elem);
    for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
      for (const auto* tensor : {&got.recorder.q[layer], &got.recorder.k[layer], &got.recorder.v[layer]}) {
        std::vector<std::uint16_t> stored(tensor->size());
        Elements(*tensor).store(elem, stored.data());
        REQUIRE((Elements(elem, stored.data(), stored.size()).floats() == *tensor));
      }
      // A value near the middle between two bf16 numbers may be rounded the other way, a step of 2^-8 for a
      // few values.
      CHECK(difference(got.recorder.k[layer], expected.recorder.k[layer]).relative <= 1e-3);
      CHECK(difference(got.recorder.rows[layer], expected.recorder.rows[layer]).largest <= 0x1p-8);
    }
  }
}

TEST_CASE("bf16 tensors are handed over in 16 bits") {
  struct Types : RunObserver {
    void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements& q, const Elements& k,
                    const Elements& v) override {
      all = all && q.elem() == Elem::bf16 && k.elem() == Elem::bf16 && v.elem() == Elem::bf16;
      elements += q.size() + k.size() + v.size();
    }
    bool all = true;
    std::uint64_t elements = 0;
  } types;
  const GoldenCheckpoint golden("llama_tied");
  on_device(golden, Elem::bf16, Elem::bf16)->forward(golden.tokens(), types);
  CHECK(types.all);
  const ModelConfig& config = golden.config;
  CHECK(types.elements ==
        config.n_layers * 40U * config.head_dim * (config.n_heads + 2U * config.n_kv_heads));
}

TEST_CASE("queries that the observer does not read are not copied out") {
  struct Late : RunObserver {
    bool wants_queries(std::uint64_t first, std::uint64_t n) const override { return first + n > 30; }
    void on_tensors(std::uint32_t, std::uint64_t first, std::uint64_t n, const Elements& q, const Elements& k,
                    const Elements&) override {
      sizes.push_back({first, q.size() / n, k.size() / n});
    }
    std::vector<std::array<std::uint64_t, 3>> sizes;
  } late;
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  const std::vector<std::int32_t> tokens = golden.tokens();
  for (std::uint64_t first = 0; first < 40; first += 20)
    model->forward(std::span(tokens).subspan(first, 20), late);
  const std::uint64_t q = std::uint64_t{golden.config.n_heads} * golden.config.head_dim;
  const std::uint64_t k = std::uint64_t{golden.config.n_kv_heads} * golden.config.head_dim;
  REQUIRE(late.sizes.size() == 2 * golden.config.n_layers);
  for (std::size_t i = 0; i < late.sizes.size(); ++i) {
    const bool second = i >= golden.config.n_layers;
    CHECK((late.sizes[i] == std::array<std::uint64_t, 3>{second ? 20U : 0U, second ? q : 0U, k}));
  }
}

TEST_CASE("an observer that wants no tensors gets none, and nothing is copied out") {
  struct Without : RunObserver {
    bool wants_tensors() const override { return false; }
    void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      FAIL("tensors were handed over");
    }
  } without;
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32), other = on_device(golden, Elem::f32, Elem::f32);
  RunObserver with;
  model->forward(golden.tokens(), without);
  other->forward(golden.tokens(), with);
  CHECK(model->logits(1) == other->logits(1));
}

TEST_CASE("column sums on the device agree with the processor") {
  for (const char* variant : {"llama_tied", "mistral_window"}) {
    const GoldenCheckpoint golden(variant);
    const std::vector<std::int32_t> tokens = golden.tokens();
    Counter counter;
    cpu::CpuRun processor(golden.config, golden.weights, {tokens.size(), Elem::f32, 2});
    const auto device = on_device(golden, Elem::f32, Elem::f32);
    CHECK(device->column_statistics(0).queries == 0);
    processor.forward(std::span(tokens).first(32), counter);
    device->forward(std::span(tokens).first(20), counter);
    device->forward(std::span(tokens).subspan(20, 12), counter);
    RunObserver nobody;
    device->forward(std::span(tokens).subspan(32, 1), nobody);  // not counted
    CHECK_THROWS_AS(device->forward(std::span(tokens).subspan(33, 1), counter), Error);
    for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
      const ColumnStatistics got = device->column_statistics(layer);
      const ColumnStatistics expected = processor.column_statistics(layer);
      CHECK(got.queries == 32);
      CHECK(difference(got.sum, expected.sum).relative <= 1e-5);
      CHECK(difference(got.sum_squares, expected.sum_squares).relative <= 1e-5);
    }
  }
}

TEST_CASE("rows are passed from the requested position on, in order, with the keys of their window") {
  const GoldenCheckpoint golden("mistral_window");  // windows of 7
  const std::vector<std::int32_t> tokens = golden.tokens();
  const Run all = on_processor(golden);
  Rows rows(30);
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  model->forward(std::span(tokens).first(28), rows);
  CHECK(rows.seen.empty());
  model->forward(std::span(tokens).subspan(28, 11), rows);
  model->forward(std::span(tokens).subspan(39, 1), rows);
  const std::uint64_t layers = golden.config.n_layers, heads = golden.config.n_heads;
  REQUIRE(rows.seen.size() == 10 * layers);
  for (std::size_t i = 0; i < rows.seen.size(); ++i) {
    const std::uint64_t layer = i < 9 * layers ? i / 9 : i - 9 * layers;
    const std::uint64_t position = i < 9 * layers ? 30 + i % 9 : 39;
    CHECK((rows.seen[i] == std::array<std::uint64_t, 4>{layer, position, position - 6, 7}));
    for (std::uint64_t head = 0; head < heads; ++head) {
      const auto expected =
          std::span(all.recorder.rows[layer]).subspan((head * 40 + position) * 40 + position - 6, 7);
      CHECK(difference(std::span(rows.values[i]).subspan(head * 7, 7), expected).largest <= 1e-5);
    }
  }
}

TEST_CASE("times of layers add up to those of the pass") {
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  RunObserver nobody;
  const PassTiming timing = model->forward(golden.tokens(), nobody);
  REQUIRE(timing.layer.size() == golden.config.n_layers);
  REQUIRE(timing.attention.size() == golden.config.n_layers);
  double layers = 0;
  for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
    CHECK(timing.attention[layer] > 0);
    CHECK(timing.layer[layer] > timing.attention[layer]);
    layers += double{timing.layer[layer]};
  }
  CHECK(layers <= 1.0001 * static_cast<double>(timing.total));
}

TEST_CASE("a slow observer makes the model wait and receives everything in order") {
  struct Slow : RunObserver {
    void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      seen.emplace_back(first, layer);
    }
    std::vector<std::pair<std::uint64_t, std::uint32_t>> seen;
  } slow;
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  const std::vector<std::int32_t> tokens = golden.tokens();
  std::vector<std::pair<std::uint64_t, std::uint32_t>> expected;
  for (std::uint64_t first = 0; first < 10; ++first) {
    model->forward(std::span(tokens).subspan(first, 1), slow);
    for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer)
      expected.emplace_back(first, layer);
    CHECK((slow.seen == expected));  // the observer has received everything when forward() returns
  }
}

TEST_CASE("a pass that runs ahead does not wait for the observer") {
  struct Held : RunObserver {
    void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      gone.wait_for(std::chrono::seconds(10));  // a run that waits for the observer must not wait for ever
      ++received;
    }
    std::promise<void> go;
    std::future<void> gone = go.get_future();
    std::atomic<std::uint64_t> received = 0;
  } held;
  const GoldenCheckpoint golden("llama_tied");
  const std::uint64_t layers = golden.config.n_layers;
  REQUIRE(2 * layers <= 4);  // pieces that may wait
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  const std::vector<std::int32_t> tokens = golden.tokens();
  model->forward_ahead(std::span(tokens).first(20), held);
  model->forward_ahead(std::span(tokens).subspan(20, 1), held);
  const TokenChoice next = model->most_probable();
  CHECK(held.received == 0);
  held.go.set_value();
  model->settle();
  CHECK(held.received == 2 * layers);

  const auto other = on_device(golden, Elem::f32, Elem::f32);
  RunObserver nobody;
  other->forward(std::span(tokens).first(20), nobody);
  other->forward(std::span(tokens).subspan(20, 1), nobody);
  CHECK(other->most_probable().id == next.id);
}

TEST_CASE("an exception of the observer ends passes that run ahead, and the observer receives nothing more") {
  struct Failing : RunObserver {
    void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      if (++calls == 3) throw Error(ErrorKind::input, "the disk is full");
    }
    int calls = 0;
  } failing;
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  const std::vector<std::int32_t> tokens = golden.tokens();
  const auto run = [&] {
    for (const std::int32_t& token : tokens) model->forward_ahead({&token, 1}, failing);
    model->settle();
  };
  CHECK_THROWS_WITH(run(), "the disk is full");
  CHECK(model->length() < 10);  // not all passes are run first
  model->abandon();
  CHECK(failing.calls == 3);
}

TEST_CASE("an interrupted generation passes nothing to its observer afterwards") {
  struct Interrupting : RunObserver {
    explicit Interrupting(Progress& progress_in, std::atomic<int>& calls_in)
        : progress(progress_in), calls(calls_in) {}
    void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      progress.stop = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++calls;
    }
    Progress& progress;
    std::atomic<int>& calls;
  };
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  GenerationOptions options;
  options.prefill_chunk = 4;
  Progress progress;
  std::atomic<int> calls = 0;
  {
    Interrupting observer(progress, calls);
    CHECK_THROWS_WITH(generate(*model, golden.tokens(), options, observer, progress), "interrupted");
  }
  const int until_then = calls;
  CHECK(until_then >= 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(calls == until_then);
}

TEST_CASE("an exception of the observer ends the pass, and the observer receives nothing more") {
  struct Failing : RunObserver {
    void on_tensors(std::uint32_t layer, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                    const Elements&) override {
      ++calls;
      if (layer == 0) throw Error(ErrorKind::input, "the disk is full");
    }
    int calls = 0;
  } failing;
  const GoldenCheckpoint golden("llama_tied");
  const auto model = on_device(golden, Elem::f32, Elem::f32);
  CHECK_THROWS_WITH(model->forward(golden.tokens(), failing), "the disk is full");
  CHECK(failing.calls == 1);
}

TEST_CASE("the most probable token found on the device is that of its logits") {
  const GoldenCheckpoint golden("llama_tied");
  RunObserver nobody;
  for (const Elem compute : {Elem::f32, Elem::bf16}) {
    const auto model = on_device(golden, compute, compute);
    for (const std::int32_t token : golden.tokens()) {
      model->forward({&token, 1}, nobody);
      const TokenChoice got = model->most_probable(), expected = model->ModelRun::most_probable();
      CHECK(got.id == expected.id);
      CHECK(got.logprob == Approx(expected.logprob).margin(1e-5));
    }
  }
}

TEST_CASE("a run on the device describes its device and arithmetic") {
  const GoldenCheckpoint golden("llama_tied");
  const trace::Capture capture = on_device(golden, Elem::bf16, Elem::bf16)->describe();
  CHECK(capture.source == "native-cuda");
  CHECK(capture.device_kind == "cuda");
  CHECK_FALSE(capture.device_name.empty());
  CHECK_FALSE(capture.driver.empty());
  CHECK_FALSE(capture.cuda_version.empty());
  CHECK(capture.compute_dtype == "bf16");
  CHECK(capture.accum_dtype == "f32");
  CHECK(capture.rope_fp32);
}

TEST_CASE("passes longer than pass_tokens are refused") {
  const GoldenCheckpoint golden("llama_tied");
  const auto model =
      cuda::open_cuda_run(0, golden.config, golden.weights, {.capacity = 30, .pass_tokens = 8});
  RunObserver nobody;
  const std::vector<std::int32_t> tokens = golden.tokens();
  CHECK_THROWS_WITH(model->forward(std::span(tokens).first(9), nobody),
                    Catch::Matchers::Contains("longer pass"));
  CHECK_THROWS_AS(cuda::open_cuda_run(0, golden.config, golden.weights,
                                      {.capacity = 30, .elem = Elem::f32, .compute = Elem::bf16}),
                  Error);
}

}  // namespace kvsim::model
