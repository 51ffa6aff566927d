// SparQ: logits from a few channels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_sparq {

namespace {

/// The set that the query heads of a lane read, in double precision.
std::set<Position> slow_choice(const SelectedCache& cache, std::size_t lane, std::size_t group,
                               std::size_t dim, std::size_t channels, std::size_t local, std::size_t count,
                               bool softmax) {
  const auto q = [&](std::size_t g, std::size_t c) {
    return static_cast<double>(cache.query(cache.position(), c, lane * group + g));
  };
  std::vector<std::size_t> order(dim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto size = [&](std::size_t c) {
    double sum = 0;
    for (std::size_t g = 0; g < group; ++g) sum += std::fabs(q(g, c));
    return sum;
  };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return size(a) > size(b); });
  order.resize(channels);
  std::vector<std::pair<double, Position>> scores;
  const auto own = static_cast<Position>(cache.position());
  const auto logit = [&](Position position, std::size_t g) {
    double product = 0, chosen = 0, all = 0;
    for (std::size_t c = 0; c < dim; ++c) all += std::fabs(q(g, c));
    for (const std::size_t c : order) {
      product += q(g, c) * static_cast<double>(cache.key(static_cast<std::size_t>(position), c, lane));
      chosen += std::fabs(q(g, c));
    }
    return product / std::sqrt(static_cast<double>(dim) * chosen / all);
  };
  std::vector<double> sums(group);
  for (const Position position : cache.slots())
    for (std::size_t g = 0; g < group; ++g) sums[g] += std::exp(logit(position, g));
  for (const Position position : cache.slots()) {
    double score = 0;
    for (std::size_t g = 0; g < group; ++g)
      score += softmax ? std::exp(logit(position, g)) / sums[g] : logit(position, g);
    if (own - position <= static_cast<Position>(local)) score = 1e300;
    scores.emplace_back(score, position);
  }
  std::sort(scores.rbegin(), scores.rend());
  std::set<Position> out;
  for (std::size_t i = 0; i < count + 1; ++i) out.insert(scores[i].second);
  return out;
}

}  // namespace

TEST_CASE("sparq: a worked example", "[sparq]") {
  // Two channels of q = (1, -4, 2) are read, the second and the third: scores are, but for a common factor,
  //   (9, 0, 1): 2;  (0, -1, 0): 4;  (0, 1, 3): 2;  (9, 0, 0): 0;  (0, -1, 1): 6;  own (0, 0, 0).
  // The logits of the first and the fourth, 11 and 9, are higher.
  SelectedShape shape{.selection = "sparq(read=2,channels=2,local=0)", .prompt = 5, .dim = 3, .length = 6};
  shape.keys = {9, 0, 1, 0, -1, 0, 0, 1, 3, 9, 0, 0, 0, -1, 1, 0, 0, 0};
  shape.queries.assign(18, 0);
  shape.queries[15] = 1;
  shape.queries[16] = -4;
  shape.queries[17] = 2;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{1, 4, 5});
  CHECK(cache.index_bits() == 6 * 3 * 16);       // all keys once more
  CHECK(cache.index_bits_read() == 6 * 2 * 16);  // two channels of them
  // With half of the two for the newest, position 4 is there for being that.
  shape.selection = "sparq(read=2,channels=1,local=0.5)";
  SelectedCache local(shape);
  local.append();
  CHECK(local.read().contains(4));
}

TEST_CASE("sparq: heads that share keys choose together, by a temperature each", "[sparq]") {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const bool softmax = seed % 2 == 0;
    const std::string scores = softmax ? "" : ",scores=logits";
    SelectedCache cache({.selection = "sparq(read=20,channels=5" + scores + ")",
                         .prompt = 90,
                         .n_lanes = 2,
                         .dim = 19,
                         .group = 3,
                         .seed = seed});
    for (int step = 0; step < 30; ++step) {
      std::vector<std::size_t> victims;
      if (step >= 10) victims = {(static_cast<std::size_t>(step) * 7) % cache.slots().size()};
      if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
      cache.append(victims);
      for (std::size_t lane = 0; lane < 2; ++lane) {
        const std::set<Position> expected = slow_choice(cache, lane, 3, 19, 5, 5, 20, softmax);
        for (std::size_t g = 0; g < 3; ++g) CHECK(cache.read(lane * 3 + g) == expected);
      }
    }
  }
}

TEST_CASE("sparq: of two heads, one that is sure decides, as Appendix B adds them up", "[sparq]") {
  // Logits of the two heads are 20, 0, 12, 0, 0 and 0, 9, 0, 0, 0. Their sums 20, 9, 12 choose the first and
  // the third; their weights, 1, 0, 0.0003 and 0.0001, 0.9995, 0.0001, the first and the second.
  SelectedShape shape{
      .selection = "sparq(read=2,channels=2,local=0)", .prompt = 5, .dim = 2, .group = 2, .length = 6};
  shape.keys = {20, 0, 0, 9, 12, 0, 0, 0, 0, 0, 0, 0};
  shape.queries.assign(24, 0);
  const auto ask = [&](const std::string& selection) {
    shape.selection = selection;
    SelectedCache cache(shape);
    for (std::size_t g = 0; g < 2; ++g) REQUIRE(cache.query(5, g, g) != 0);
    cache.append();
    return cache.read();
  };
  // Queries of the sixth token: (sqrt 2, 0) and (0, sqrt 2), of which sqrt(2) divides the logits again.
  for (std::size_t g = 0; g < 2; ++g) shape.queries[(5 * 2 + g) * 2 + g] = std::sqrt(2.0F);
  CHECK(ask("sparq(read=2,channels=2,local=0)") == std::set<Position>{0, 1, 5});
  CHECK(ask("sparq(read=2,channels=2,local=0,scores=logits)") == std::set<Position>{0, 2, 5});
  CHECK(parse_composition("sparq.logits", builtin()).selection->params.word("scores") == "logits");
}

TEST_CASE("sparq: limits", "[sparq]") {
  SelectedCache all({.selection = "sparq(read=100%)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  CHECK(all.index_bits_read() == 0);
  SelectedCache dense({.selection = "sparq(read=3,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
  // All channels: the exact logits, and the newest beside them.
  SelectedCache exact({.selection = "sparq(read=10,channels=64,local=0)", .prompt = 50, .dim = 6});
  exact.append();
  std::vector<Position> order(50);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](Position a, Position b) {
    return exact.logit(50, static_cast<std::size_t>(a)) > exact.logit(50, static_cast<std::size_t>(b));
  });
  std::set<Position> expected(order.begin(), order.begin() + 10);
  expected.insert(50);
  CHECK(exact.read() == expected);
  // Asked again after it has gone, the last prompt token is read beside the others by the feeder.
  SelectedCache again({.selection = "sparq(read=10)", .prompt = 50, .every = 2});
  again.ask_again();
  CHECK(again.read().size() == 11);
}

TEST_CASE("sparq: flash is read in whole pages, of the same tokens", "[sparq]") {
  // A page of 64 bytes holds 8 keys of four 16-bit numbers, or 32 numbers of one channel.
  const SelectedShape plain{.selection = "sparq(read=6,channels=2)", .prompt = 99, .n_lanes = 2};
  SelectedShape paged = plain;
  paged.selection = "sparq(read=6,channels=2,page_bytes=64)";
  SelectedCache a(plain), b(paged);
  for (int step = 0; step < 12; ++step) {
    a.append();
    b.append();
    std::uint64_t expected = 0;
    const std::size_t slots = a.slots().size();
    for (std::size_t lane = 0; lane < 2; ++lane) {
      CHECK(a.read(lane) == b.read(lane));
      std::set<Position> pages;
      for (const Position position : b.read(lane)) pages.insert(position / 8);
      expected += 2 * ((slots + 31) / 32 * 32) * 16;
      expected += 2 * (pages.size() * 8 - b.read(lane).size()) * 4 * 16;
    }
    CHECK(a.index_bits_read() == 2 * 2 * slots * 16);
    CHECK(b.index_bits_read() == expected);
    const CostShape shape{.n_layers = 9, .query_heads = 2, .kv_heads = 2, .head_dim = 4, .value_dim = 4};
    CHECK(static_cast<double>(expected) <= 8 * b.part().reads(shape, 5, slots).index_bytes_read);
    CHECK(8 * a.part().reads(shape, 5, slots).index_bytes_read == static_cast<double>(a.index_bits_read()));
  }
  const Composition preset = parse_composition("instinfer", builtin());
  CHECK(preset.selection->params.count("page_bytes") == 16384);
}

TEST_CASE("sparq: what is read is r / 2d for the channels and k / n of the tokens", "[sparq]") {
  const Part part = *parse_composition("full+sparq(read=128,channels=32)", builtin()).selection;
  const CostShape shape{.n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128};
  const ReadCount count = part.reads(shape, 0, 4096);
  const double token_bytes = 8 * (128 + 128) * 2;
  CHECK((count.lane_tokens * token_bytes + count.index_bytes_read) / (4096 * token_bytes) == 0.15625);
  CHECK(count.index_bytes == 4096 * token_bytes / 2);
}

}  // namespace kvsim::policy::test::test_selection_sparq
