// Tests the shared arithmetic: attention rows, importance, largest sums and the per-step oracle.
#include <catch2/catch.hpp>

#include "policies/parts/rows/window_rows.hpp"
#include "sim/attention/attention_rows.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/step_oracle.hpp"
#include "sim/base/cap_logits.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"

namespace kvsim::test_rows {

TEST_CASE("attention rows by hand") {
  // One query (1, 0), keys (0,0) and (ln 3, 5): logits 0 and ln 3, softmax 1/4 and 3/4.
  const float q[] = {1, 0}, k[] = {0, 0, std::log(3.0F), 5};
  float out[2];
  sim::attention_rows({1.0, -1}, {q, 1, 2, 2}, 1, sim::KeyPanels({k, 2, 2, 2}), out, 2);
  CHECK(out[0] == Approx(0.25F));
  CHECK(out[1] == Approx(0.75F));
}

TEST_CASE("capped logits") {
  // Logits 0 and 2, which a cap of 1 makes tanh(2) = 0.9640.
  const float q[] = {1, 0}, k[] = {0, 0, 2, 5};
  float out[2];
  sim::attention_rows({1.0, -1, 1.0}, {q, 1, 2, 2}, 1, sim::KeyPanels({k, 2, 2, 2}), out, 2);
  CHECK(out[1] == Approx(1 / (1 + std::exp(-std::tanh(2.0)))));
  // Whatever stands beside a logit, and wherever it lies, it is capped to the same bits.
  std::vector<float> many(40);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i) - 20;
  const std::vector<float> given = many;
  cap_logits(many.data() + 1, 39, 7);
  for (std::size_t i = 1; i < many.size(); ++i) {
    CHECK(many[i] == Approx(7 * std::tanh(static_cast<double>(given[i]) / 7)).epsilon(1e-6));
    float one = given[i];
    cap_logits(&one, 1, 7);
    CHECK(one == many[i]);
  }
  CHECK(many[0] == -20);
}

TEST_CASE("a sink takes its share of a row") {
  // Logits 0 and ln 3 beside a sink of ln 4: 1/8 and 3/8, and 1/2 is the sink's.
  const float q[] = {1, 0}, k[] = {0, 0, std::log(3.0F), 5};
  float out[2];
  const sim::AttentionShape shape{.sink = std::log(4.0F)};
  sim::attention_rows(shape, {q, 1, 2, 2}, 1, sim::KeyPanels({k, 2, 2, 2}), out, 2);
  CHECK(out[0] == Approx(0.125F));
  CHECK(out[1] == Approx(0.375F));
  CHECK(sim::sink_share(out) == Approx(0.5));
  float row[] = {0, std::log(3.0F)};
  CHECK(sim::softmax(row, 2, std::log(4.0F)) == Approx(0.5F));
  // However large, a sink leaves numbers.
  float small[] = {0, 1};
  CHECK(sim::softmax(small, 2, 1000) == 1);
  CHECK((small[0] < 1e-37F && small[1] < 1e-37F));  // 0, or nearly, by the processor's vectors
}

TEST_CASE("attention rows agree with the definition, block by block, with and without a sliding window") {
  for (const std::int32_t window : {-1, 1, 5, 1000}) {
    const trace::MemoryTrace trace =
        test::random_trace({.layers = 1, .prompt = 40, .decode = 0, .layer_window = {window}});
    const trace::Sequence sequence(trace);
    const test::Rows expected = test::attention(sequence, 0, 3);
    std::vector<float> keys(40 * 8), queries(40 * 8);
    sequence.read(trace::Tensor::key, 0, 1, 0, 40, keys);
    sequence.read(trace::Tensor::query, 0, 3, 0, 40, queries);
    for (const std::size_t block : {1, 7, 40}) {
      for (std::size_t first = 0; first < 40; first += block) {
        const std::size_t n = std::min<std::size_t>(block, 40 - first);
        std::vector<float> out(n * 50, -1.0F);
        sim::attention_rows({sequence.model().attn_scale, window}, {queries.data() + first * 8, n, 8, 8},
                            first, sim::KeyPanels({keys.data(), 40, 8, 8}), out.data(), 50);
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < first + n; ++j)
            REQUIRE(out[i * 50 + j] == Approx(expected[first + i][j]).margin(1e-6));
        REQUIRE(out[first + n] == -1.0F);  // nothing after the block's last key is written
      }
    }
  }
}

TEST_CASE("rows and products do not depend on where they lie in memory") {
  for (const std::size_t n : {1, 2, 5, 33}) {
    constexpr std::size_t kDim = 24, kKeys = 77;
    const auto noise = [](std::size_t count, std::size_t shift, std::uint64_t stream) {
      std::vector<float> x(count + shift);
      for (std::size_t i = 0; i < count; ++i) x[shift + i] = static_cast<float>(normal(combine({stream, i})));
      return x;
    };
    std::vector<float> rows, product;
    for (std::size_t shift = 0; shift < 17; ++shift) {
      const std::vector<float> q = noise(n * kDim, shift, 1), k = noise(kKeys * kDim, (shift * 5) % 17, 2);
      std::vector<float> out(n * kKeys + shift), outputs(n * kDim + (shift * 3) % 17);
      sim::attention_rows({0.3, -1}, {q.data() + shift, n, kDim, kDim}, kKeys - n,
                          sim::KeyPanels({k.data() + (shift * 5) % 17, kKeys, kDim, kDim}),
                          out.data() + shift, kKeys);
      sim::multiply({out.data() + shift, n, kKeys, kKeys}, {k.data() + (shift * 5) % 17, kKeys, kDim, kDim},
                    outputs.data() + (shift * 3) % 17);
      out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(shift));
      outputs.erase(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>((shift * 3) % 17));
      if (shift == 0) rows = out, product = outputs;
      CHECK(out == rows);
      CHECK(outputs == product);
    }
  }
}

namespace {

/// Returns w as replay measures it, by a subscription to the prompt pass.
std::vector<double> importance(const trace::Sequence& sequence, std::uint32_t head) {
  const sim::GroupTensors tensors(sequence, {0, head, 1}, {});
  policy::WindowImportance w(static_cast<int>(sequence.model().group()));
  const sim::Subscription subscription{&w, 0, 1, {std::min<std::size_t>(8, sequence.prompt_length())}};
  Progress progress;
  sim::replay_prompt(tensors, {&subscription, 1}, progress);
  return w.values();
}

}  // namespace

TEST_CASE("importance is the mean of the last eight rows, pooled over seven positions") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 1, .prompt = 30, .decode = 2});
  const trace::Sequence sequence(trace);
  const std::vector<double> w = importance(sequence, 1);
  const std::vector<double> expected =
      test::slow_importance({test::attention(sequence, 0, 2), test::attention(sequence, 0, 3)}, 30);
  REQUIRE(w.size() == 22);
  for (std::size_t j = 0; j < w.size(); ++j) CHECK(w[j] == Approx(expected[j]));
}

TEST_CASE("a prompt no longer than the window has no importance") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 8, .decode = 2});
  CHECK(importance(trace::Sequence(trace), 0).empty());
}

TEST_CASE("largest sums") {
  const std::vector<double> w{0.5, 0.125, 0.25};
  CHECK(sim::largest_sums(w) == std::vector<double>{0, 0.5, 0.75, 0.875});
  CHECK(sim::largest_sums({}) == std::vector<double>{0});
}

TEST_CASE("the per-step oracle takes the n largest for every set of counts") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t size = 1 + mix(seed) % 40;
    std::vector<float> row(size);
    for (std::size_t j = 0; j < size; ++j)  // ties on purpose
      row[j] = static_cast<float>(mix(combine({seed, j})) % 7) / 8.0F + (j == 0 ? 0.125F : 0.0F);
    std::vector<std::size_t> counts;
    for (std::size_t n = 0; n <= size; ++n)
      if (mix(combine({seed, n, 5})) % 3 == 0) counts.push_back(n);
    const std::vector<double> values(row.begin(), row.end());
    const double total = test::top(values, size);
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    std::vector<sim::LargestEntries> best(counts.size());
    sim::largest_entries(row, counts, best);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      CHECK(best[i].share == Approx(test::top(values, counts[i]) / total));
      const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(counts[i]);
      CHECK(best[i].squares == Approx(std::inner_product(sorted.begin(), end, sorted.begin(), 0.0)));
      if (counts[i] == 0) continue;
      CHECK(static_cast<double>(best[i].least) == *(end - 1));
      CHECK(static_cast<std::ptrdiff_t>(best[i].ties) == std::count(sorted.begin(), end, *(end - 1)));
    }
  }
  CHECK(true);
}

}  // namespace kvsim::test_rows
