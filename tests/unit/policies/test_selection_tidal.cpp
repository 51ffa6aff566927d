// TidalDecode: a few layers choose for those behind them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_tidal {

namespace {

Part tidal(const std::string& params) {
  return *parse_composition("full+tidal" + params, builtin()).selection;
}

}  // namespace

TEST_CASE("tidal: a worked example", "[tidal]") {
  // What a layer is given are the keys and queries of the layer that chooses for it. Logits of q = (1, 2):
  // 1, 2, 3, 0, -1 and 1 of the newest.
  SelectedShape shape{.selection = "tidal(read=2)", .prompt = 5, .dim = 2, .length = 6, .layer = 3};
  shape.keys = {1, 0, 0, 1, 1, 1, 0, 0, -1, 0, 1, 0};
  shape.queries.assign(12, 0);
  shape.queries[10] = 1;
  shape.queries[11] = 2;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.leader() == 2);
  CHECK(cache.read() == std::set<Position>{1, 2, 5});
  CHECK(cache.index_bits() == 0);
  CHECK(cache.index_bits_read() == 0);
}

TEST_CASE("tidal: who chooses for which layer", "[tidal]") {
  const auto leader = [](const std::string& selection, int layer) {
    return SelectedCache({.selection = selection, .prompt = 4, .layer = layer, .n_layers = 32}).leader();
  };
  for (const int layer : {0, 1, 2, 13}) CHECK(!leader("tidal", layer));
  for (const int layer : {3, 12}) CHECK(leader("tidal", layer) == 2);
  for (const int layer : {14, 31}) CHECK(leader("tidal", layer) == 13);
  for (const int layer : {3, 13, 31}) CHECK(leader("tidal(correction=0)", layer) == 2);
  CHECK(!leader("tidal(dense=0,correction=0)", 0));
  CHECK(leader("tidal(dense=0,correction=0)", 1) == 0);
  CHECK_THROWS_AS(tidal("(correction=2)"), Error);
  CHECK_THROWS_AS(tidal("(correction=5,dense=7)"), Error);
  CHECK_NOTHROW(tidal("(correction=3)"));
}

TEST_CASE("tidal: each query head has the tokens of its own highest logits", "[tidal]") {
  SelectedCache cache({.selection = "tidal(read=20%)", .prompt = 77, .n_lanes = 2, .dim = 19, .group = 3});
  for (int step = 0; step < 20; ++step) {
    cache.append(step % 2 == 0 ? std::vector<std::size_t>{} : std::vector{static_cast<std::size_t>(step)});
    for (std::size_t head = 0; head < 6; ++head) {
      std::vector<Position> order = cache.slots();
      std::sort(order.begin(), order.end(), [&](Position a, Position b) {
        return cache.logit(cache.position(), static_cast<std::size_t>(a), head) >
               cache.logit(cache.position(), static_cast<std::size_t>(b), head);
      });
      std::set<Position> expected{static_cast<Position>(cache.position())};
      expected.insert(order.begin(), order.begin() + static_cast<int>((order.size() + 4) / 5));
      CHECK(cache.read(head) == expected);
    }
  }
}

TEST_CASE("tidal: limits", "[tidal]") {
  SelectedCache all({.selection = "tidal(read=100%)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  for (const int layer : {0, 1, 2, 13}) {
    SelectedCache dense({.selection = "tidal(read=5)", .prompt = 50, .layer = layer, .n_layers = 20});
    dense.append();
    CHECK(dense.read().size() == 51);
  }
}

TEST_CASE("tidal: shares of a model of 32 layers that are read", "[tidal]") {
  // (4 + 28 k / n) / 32, with two dense layers and two that choose.
  const CostShape shape{.n_layers = 32, .query_heads = 32, .kv_heads = 32, .head_dim = 128, .value_dim = 128};
  const auto share = [&](const std::string& read, std::size_t n) {
    const Part part = tidal("(read=" + read + ")");
    double tokens = 0;
    for (std::size_t layer = 0; layer < 32; ++layer) tokens += part.reads(shape, layer, n).head_tokens;
    return tokens / (32 * static_cast<double>(n));
  };
  CHECK(share("512", 32768) == 0.138671875);
  CHECK(share("256", 102400) == Approx(0.1271875));
  CHECK(share("4096", 10240) == Approx(0.475));
}

}  // namespace kvsim::policy::test::test_selection_tidal
