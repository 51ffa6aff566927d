// Maps from a small model's cache to a large one's.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/rotary.hpp"
#include "sim/replay/kv_prediction.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::test_kv_prediction {

using Catch::Contains;

namespace {

trace::MemoryTrace run_of(std::uint64_t seed, std::uint32_t layers, std::uint32_t heads,
                          std::uint64_t prompt) {
  return test::random_trace(
      {.layers = layers, .kv_heads = heads, .prompt = prompt, .decode = 2, .seed = seed});
}

sim::Calibration fitted(const std::vector<sim::PredictionRun>& runs, const std::vector<std::size_t>& from,
                        double ridge = 0) {
  Progress progress;
  return sim::fit_prediction(runs, from, ridge, progress);
}

/// Keys of a token before rotation, or its values: all heads together.
std::vector<double> numbers(const trace::Sequence& run, trace::Tensor tensor, std::uint32_t layer,
                            std::uint64_t token) {
  const trace::Model& model = run.model();
  std::vector<double> out;
  std::vector<float> row(model.head_dim);
  for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
    run.read(tensor, layer, head, token, 1, row);
    if (tensor == trace::Tensor::key) unrotate(model.rotary(layer), token, model.head_dim, row);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace

TEST_CASE("a layer of the small model serves each of the large one's") {
  // apple/corenet: 270M for 1.1B.
  CHECK(sim::prediction_layers(28, 16) == std::vector<std::size_t>{0,  0,  1,  1,  2,  2,  3,  3, 4, 4,
                                                                   5,  5,  6,  6,  7,  7,  8,  8, 9, 9,
                                                                   10, 10, 11, 11, 12, 13, 14, 15});
  CHECK(sim::prediction_layers(4, 4) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(sim::prediction_layers(4, 3) == std::vector<std::size_t>{0, 0, 1, 2});
  CHECK(sim::prediction_layers(6, 2) == std::vector<std::size_t>{0, 0, 0, 1, 1, 1});
  CHECK(sim::prediction_layers(2, 4) == std::vector<std::size_t>{0, 2});
}

TEST_CASE("maps worked by hand, with ridge and without") {
  // Values 1 2 3 2 become 3 5 7 5: twice that, and one. With a ridge of a half, the variance: 1, and 3.
  trace::MemoryTrace large = test::random_trace({.layers = 1, .kv_heads = 1, .head_dim = 2, .prompt = 4}),
                     small = test::random_trace(
                         {.layers = 1, .kv_heads = 1, .head_dim = 2, .prompt = 4, .seed = 2});
  const float x[] = {1, 2, 3, 2};
  for (std::size_t token = 0; token < large.rows(trace::Tensor::value, 0, 0).size() / 2; ++token) {
    const float at = x[token % 4];
    small.rows(trace::Tensor::value, 0, 0)[2 * token] = at;
    small.rows(trace::Tensor::value, 0, 0)[2 * token + 1] = 0;
    large.rows(trace::Tensor::value, 0, 0)[2 * token] = 2 * at + 1;
    large.rows(trace::Tensor::value, 0, 0)[2 * token + 1] = -at;
  }
  const trace::Sequence of_large(large), of_small(small);
  const sim::PredictionRun run{"large", "small", &of_large, &of_small};
  for (const auto& [ridge, scale, bias] : {std::tuple{0.0, 2.0, 1.0}, {0.5, 1.0, 3.0}}) {
    const std::vector<float> values = fitted({run}, {0}, ridge).tables[1].values;
    REQUIRE(values.size() == 3 * 2);
    CHECK(values[0] == Approx(scale));
    CHECK(values[1] == Approx(-scale / 2));
    CHECK(values[2] == Approx(0).margin(1e-6));
    CHECK(values[4] == Approx(bias));
    CHECK(values[5] == Approx(scale - 2).margin(1e-6));
  }
}

TEST_CASE("what least squares leave is at right angles to every input") {
  const trace::MemoryTrace large = run_of(1, 3, 2, 60), small = run_of(2, 2, 1, 60),
                           more = run_of(3, 3, 2, 41), fewer = run_of(4, 2, 1, 41);
  const trace::Sequence a(large), b(small), c(more), d(fewer);
  const std::vector<sim::PredictionRun> runs{{"a", "b", &a, &b}, {"c", "d", &c, &d}};
  const std::vector<std::size_t> from = sim::prediction_layers(3, 2);
  for (const double ridge : {0.0, 0.1}) {
    const sim::Calibration maps = fitted(runs, from, ridge);
    for (const trace::Tensor tensor : {trace::Tensor::key, trace::Tensor::value}) {
      const sim::Calibration::Table& table = maps.tables[tensor == trace::Tensor::key ? 0 : 1];
      REQUIRE(table.numbers == 9 * 8);
      for (std::uint32_t layer = 0; layer < 3; ++layer) {
        std::vector<double> sums(9 * 16);  // of what is left, times each input
        for (const sim::PredictionRun& run : runs)
          for (std::uint64_t token = 0; token < run.large->prompt_length(); ++token) {
            std::vector<double> x =
                numbers(*run.small, tensor, static_cast<std::uint32_t>(from[layer]), token);
            x.push_back(1);
            const std::vector<double> y = numbers(*run.large, tensor, layer, token);
            for (std::size_t o = 0; o < 16; ++o) {
              double left = y[o];
              for (std::size_t i = 0; i < 9; ++i)
                left -= x[i] * table.values[(layer * 2 + o / 8) * table.numbers + i * 8 + o % 8];
              for (std::size_t i = 0; i < 9; ++i) sums[i * 16 + o] += left * x[i];
            }
          }
        for (std::size_t i = 0; i < 9; ++i)
          for (std::size_t o = 0; o < 16; ++o) {
            const double weight = table.values[(layer * 2 + o / 8) * table.numbers + i * 8 + o % 8];
            CHECK(sums[i * 16 + o] == Approx(i < 8 ? ridge * 101 * weight : 0).margin(1e-3));
          }
      }
    }
  }
}

TEST_CASE("identical models are predicted to rounding, on a text that nothing was fitted to") {
  const trace::MemoryTrace one = run_of(1, 2, 2, 80), two = run_of(2, 2, 2, 50);
  const trace::Sequence a(one), b(two);
  const std::vector<std::size_t> from = sim::prediction_layers(2, 2);
  const sim::Calibration maps = fitted({{"a", "a", &a, &a}}, from);
  const sim::PredictionRun run{"b", "b", &b, &b};
  CHECK(sim::check_prediction(maps, run) == from);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    const sim::PredictedLayer out = sim::predict_layer(maps, run, layer, layer);
    CHECK(out.key_error < 1e-5);
    CHECK(out.value_error < 1e-5);
    std::vector<float> keys(50 * 8);
    b.read(trace::Tensor::key, layer, 1, 0, 50, keys);
    for (std::size_t i = 0; i < keys.size(); ++i)
      CHECK(out.keys[keys.size() + i] == Approx(keys[i]).margin(1e-4));
  }
  // Noise says nothing about other noise.
  const trace::MemoryTrace other = run_of(5, 2, 2, 80), elsewhere = run_of(6, 2, 2, 50);
  const trace::Sequence c(other), d(elsewhere);
  const sim::Calibration none = fitted({{"a", "c", &a, &c}}, from);
  CHECK(sim::predict_layer(none, {"b", "d", &b, &d}, 0, 0).key_error > 0.9);
}

TEST_CASE("maps are refused for other models, their own runs and too few tokens") {
  const trace::MemoryTrace one = run_of(1, 2, 2, 80), two = run_of(2, 2, 2, 50), deep = run_of(3, 3, 2, 50),
                           shorter = run_of(4, 2, 2, 15);
  const trace::Sequence a(one), b(two), c(deep), d(shorter);
  const std::vector<std::size_t> from{0, 1};
  const sim::Calibration maps = fitted({{"a", "a", &a, &a}}, from);
  CHECK_THROWS_WITH(sim::check_prediction(maps, {"a", "a", &a, &a}), Contains("is one of the runs"));
  CHECK_THROWS_WITH(sim::check_prediction(maps, {"c", "b", &c, &b}), Contains("is of another model"));
  CHECK_THROWS_WITH(sim::check_prediction(maps, {"b", "d", &b, &d}), Contains("has other tokens"));
  CHECK_THROWS_WITH(fitted({{"d", "d", &d, &d}}, from), Contains("have 15 tokens, and a map 17 numbers"));
  CHECK_NOTHROW(fitted({{"d", "d", &d, &d}}, from, 0.001));
}

}  // namespace kvsim::test_kv_prediction
