// Tests XKV's importance by layer against the whole triangle of attention, and its refusals.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/inspect/layer_importance.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"

namespace kvsim::test_layer_importance {

namespace {

std::vector<std::vector<double>> importance(const trace::MemoryTrace& trace,
                                            const sim::ImportanceStudy& study = {}) {
  Progress progress;
  auto layers = sim::layer_importance(trace::Sequence(trace), study, progress);
  CHECK(progress.done == progress.total);
  return layers;
}

/// Returns a trace that has the queries of the last `rows` prompt tokens only.
trace::MemoryTrace with_queries(std::uint64_t prompt, std::uint64_t rows) {
  trace::Header header = test::random_trace({.prompt = prompt, .decode = 3}).header();
  for (std::uint64_t token = prompt - rows; token < prompt + 3; ++token) header.query_token.push_back(token);
  return trace::MemoryTrace(header);
}

}  // namespace

TEST_CASE("importance of layers agrees with its definition") {
  const trace::MemoryTrace trace =
      test::random_trace({.layers = 2, .kv_heads = 2, .group = 3, .prompt = 75, .layer_window = {-1, 20}});
  const trace::Sequence sequence(trace);
  const auto pooled = importance(trace),
             plain = importance(trace, {.rows = 3, .pooling = {policy::Pooling::Kind::average, 1}});
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    std::vector<test::Rows> heads;
    for (std::uint32_t head = 0; head < 6; ++head) heads.push_back(test::attention(sequence, layer, head));
    // A layer with a window of 20 holds the last 20 of the prompt.
    const std::size_t first = layer == 0 ? 0 : 55;
    const std::vector<double> expected = test::slow_importance(heads, 75, first);
    REQUIRE(pooled[layer].size() == 67);
    for (std::size_t j = 0; j < 67; ++j)
      CHECK(pooled[layer][j] == Approx(j < first ? 0 : expected[j - first]).margin(1e-6));
    REQUIRE(plain[layer].size() == 72);
    for (std::size_t j = 0; j < 72; ++j) {
      double mean = 0;
      for (const test::Rows& a : heads)
        if (j >= first) mean += (a[72][j] + a[73][j] + a[74][j]) / 18;
      CHECK(plain[layer][j] == Approx(mean).margin(1e-6));
    }
  }
}

TEST_CASE("importance where every position gets equal attention, or one gets all") {
  trace::MemoryTrace trace = test::random_trace({.layers = 1, .kv_heads = 1, .group = 1, .prompt = 40});
  const std::span<float> keys = trace.rows(trace::Tensor::key, 0, 0),
                         queries = trace.rows(trace::Tensor::query, 0, 0);
  std::fill(keys.begin(), keys.end(), 0.0F);
  const sim::ImportanceStudy plain{.rows = 2, .pooling = {policy::Pooling::Kind::average, 1}};
  // Rows 38 and 39 see 39 and 40 positions.
  const std::vector<double> flat = importance(trace, plain)[0];
  for (const double w : flat) CHECK(w == Approx((1.0 / 39 + 1.0 / 40) / 2));
  // Every query points at the key of position 5.
  std::fill(queries.begin(), queries.end(), 20.0F);
  std::fill_n(keys.begin() + 5 * 8, 8, 20.0F);
  const std::vector<double> one = importance(trace, plain)[0];
  for (std::size_t j = 0; j < one.size(); ++j) CHECK(one[j] == Approx(j == 5 ? 1 : 0).margin(1e-12));
  // Pooling spreads it over 7 positions; at the beginning of the prompt some of them do not exist.
  const std::vector<double> wide = importance(trace)[0];
  for (std::size_t j = 0; j < wide.size(); ++j)
    CHECK(wide[j] == Approx(j >= 2 && j <= 8 ? 1.0 / 7 : 0).margin(1e-12));
}

TEST_CASE("importance does not depend on threads or on queries that it does not need") {
  trace::MemoryTrace trace = test::random_trace({.layers = 3, .prompt = 150});
  CHECK(importance(trace, {.threads = 1}) == importance(trace, {.threads = 3}));
  CHECK_NOTHROW(importance(with_queries(150, 8)));
}

TEST_CASE("importance is refused where it does not exist") {
  CHECK_THROWS_WITH(importance(test::random_trace({.prompt = 8})),
                    Catch::Contains("prompt of 8 tokens") && Catch::Contains("longer prompt"));
  CHECK(importance(test::random_trace({.prompt = 9}))[0].size() == 1);
  CHECK_THROWS_WITH(importance(with_queries(20, 7)),
                    Catch::Contains("stores queries from position 13 on") && Catch::Contains("--queries"));
  CHECK_THROWS_AS(importance(test::random_trace({}), {.rows = 0}), Error);
  Progress stopped;
  stopped.stop = true;
  const trace::MemoryTrace trace = test::random_trace({});
  CHECK_THROWS_WITH(sim::layer_importance(trace::Sequence(trace), {}, stopped),
                    Catch::Contains("interrupted"));
}

}  // namespace kvsim::test_layer_importance
