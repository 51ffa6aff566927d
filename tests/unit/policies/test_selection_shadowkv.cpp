// ShadowKV's reading: chunks by landmarks, outliers and what is always read.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_shadowkv {

namespace {

using Numbers = std::vector<double>;

struct SlowRule {
  std::size_t chunk, outliers, local, chosen;
};

/// What a lane reads of `held` prompt tokens, straight from the definition; a token that has been evicted is
/// not in `now`.
std::set<Position> slow_reads(const SelectedCache& cache, const std::vector<Position>& held,
                              const SlowRule& rule, std::size_t lane, std::size_t group, std::size_t dim) {
  const auto key = [&](Position p, std::size_t c) {
    return static_cast<double>(cache.key(static_cast<std::size_t>(p), c, lane));
  };
  const std::set<Position> now(cache.slots().begin(), cache.slots().end());
  const std::size_t all = held.size() / rule.chunk, chunks = all - std::min(all, rule.local);
  std::vector<Numbers> means;
  Numbers fits;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    Numbers mean(dim);
    for (std::size_t i = 0; i < rule.chunk; ++i)
      for (std::size_t c = 0; c < dim; ++c) mean[c] += key(held[chunk * rule.chunk + i], c);
    for (double& x : mean) x /= static_cast<double>(rule.chunk);
    double worst = 2;
    for (std::size_t i = 0; i < rule.chunk; ++i) {
      double product = 0, a = 0, b = 0;
      for (std::size_t c = 0; c < dim; ++c) {
        const double x = key(held[chunk * rule.chunk + i], c);
        product += x * mean[c];
        a += x * x;
        b += mean[c] * mean[c];
      }
      worst = std::min(worst, product / std::sqrt(a * b));
    }
    means.push_back(mean);
    fits.push_back(worst);
  }
  std::vector<std::size_t> order(chunks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return fits[a] < fits[b]; });
  std::set<std::size_t> read(order.begin(),
                             order.begin() + static_cast<std::ptrdiff_t>(std::min(rule.outliers, chunks)));
  std::vector<std::size_t> landmarks;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    bool alive = false;
    for (std::size_t i = 0; i < rule.chunk; ++i) alive |= now.contains(held[chunk * rule.chunk + i]);
    if (!read.contains(chunk) && alive) landmarks.push_back(chunk);
  }
  std::map<std::size_t, double> scores;
  for (std::size_t head = lane * group; head < (lane + 1) * group; ++head) {
    double sum = 0;
    Numbers weights;
    for (const std::size_t chunk : landmarks) {
      double logit = 0;
      for (std::size_t c = 0; c < dim; ++c)
        logit += static_cast<double>(cache.query(cache.position(), c, head)) * means[chunk][c];
      weights.push_back(std::exp(logit * SelectedCache::kScale));
      sum += weights.back();
    }
    for (std::size_t i = 0; i < landmarks.size(); ++i)
      scores[landmarks[i]] = std::max(scores[landmarks[i]], weights[i] / sum);
  }
  std::sort(landmarks.begin(), landmarks.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
  for (std::size_t i = 0; i < std::min(rule.chosen, landmarks.size()); ++i) read.insert(landmarks[i]);
  std::set<Position> out;
  for (const Position position : now) {
    const auto at = std::find(held.begin(), held.end(), position);
    const auto chunk = static_cast<std::size_t>(at - held.begin()) / rule.chunk;
    if (at == held.end() || chunk >= chunks || read.contains(chunk)) out.insert(position);
  }
  return out;
}

}  // namespace

TEST_CASE("shadowkv: a worked example", "[shadowkv]") {
  // Chunks of two keys: {(1,0),(1,0)}, {(2,0),(4,0)}, {(0,3),(3,0)}, {(0,2),(0,2)}, {(2,2),(2,2)}, one local,
  // and the token behind it. In the third chunk both cosines with the mean are 1/sqrt(2), in the others 1: it
  // is the outlier. Landmarks: (1,0), (3,0), (0,2), (2,2). Two query heads, scale 1/2:
  //   q = (2,0): logits 1, 3, 0, 2: softmax .0871, .6439, .0321, .2369
  //   q = (-1,4): logits -.5, -1.5, 4, 3: softmax .0080, .0030, .7233, .2660
  // The most of each: .0871, .6439, .7233, .2660: two chunks are the third landmark and the second.
  SelectedShape shape{.selection = "shadowkv(read=4,chunk=2,outliers=1,local=1)",
                      .prompt = 13,
                      .dim = 2,
                      .group = 2,
                      .length = 14};
  shape.keys = {1, 0, 1, 0, 2, 0, 4, 0, 0, 3, 3, 0, 0, 2, 0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0};
  shape.queries.assign(14 * 4, 0);
  shape.queries[13 * 4] = 2;
  shape.queries[13 * 4 + 2] = -1;
  shape.queries[13 * 4 + 3] = 4;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read(0) == std::set<Position>{2, 3, 4, 5, 6, 7, 10, 11, 12, 13});
  CHECK(cache.read(1) == cache.read(0));
  CHECK(cache.index_bits() == 4 * 2 * 16);
  CHECK(cache.index_bits_read() == cache.index_bits());
}

TEST_CASE("shadowkv: reads what the definition says, whatever is evicted", "[shadowkv]") {
  for (const std::size_t every : {1, 2})
    for (const std::uint64_t seed : {1, 2, 3}) {
      SelectedCache cache({.selection = "shadowkv(read=21,chunk=4,outliers=3,local=2)",
                           .prompt = 101,
                           .n_lanes = 2,
                           .dim = 9,
                           .group = 3,
                           .seed = seed,
                           .every = every});
      const std::vector<Position> held = cache.slots();
      for (int step = 0; step < 60; ++step) {
        std::vector<std::size_t> victims;
        if (step >= 10) victims = {(static_cast<std::size_t>(step) * 7) % cache.slots().size()};
        if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
        cache.append(victims);
        for (std::size_t head = 0; head < 6; ++head)
          CHECK(cache.read(head) == slow_reads(cache, held, {4, 3, 2, 5}, head / 3, 3, 9));
      }
    }
}

TEST_CASE("shadowkv: limits", "[shadowkv]") {
  SelectedCache all({.selection = "shadowkv(read=100%)", .prompt = 500});
  all.append();
  CHECK(all.read().size() == 501);
  CHECK(all.index_bits_read() == 0);
  // 62 chunks of 8, the last 4 and 4 tokens local, 48 outliers: ten landmarks are eight with align=8.
  CHECK(all.index_bits() == 10 * 4 * 16);
  SelectedCache aligned({.selection = "shadowkv(read=8,align=8)", .prompt = 500});
  aligned.append();
  CHECK(aligned.index_bits() == 8 * 4 * 16);
  CHECK(aligned.read().size() == 501 - 7 * 8);
  SelectedCache dense({.selection = "shadowkv(read=8,dense=6)", .prompt = 500});
  dense.append();
  CHECK(dense.read().size() == 501);
  // Everything is local or an outlier.
  SelectedCache few({.selection = "shadowkv(read=1)", .prompt = 52 * 8 + 7});
  few.append();
  CHECK(few.read().size() == 52 * 8 + 8);
  // Fewer tokens than a chunk: no landmark is read.
  SelectedCache none({.selection = "shadowkv(read=7,outliers=0,local=0)", .prompt = 80});
  none.append();
  CHECK(none.read() == std::set<Position>{80});
}

TEST_CASE("shadowkv: what it says that it reads", "[shadowkv]") {
  for (const std::string selection : {"shadowkv(read=16)", "shadowkv(read=20%,chunk=4,outliers=7,align=8)"}) {
    SelectedCache cache({.selection = selection, .prompt = 530, .n_lanes = 2, .group = 2});
    for (int step = 0; step < 9; ++step) cache.append();
    const CostShape shape{
        .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 530};
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    for (std::size_t head = 0; head < 4; ++head)
      CHECK(static_cast<double>(cache.read(head).size()) == count.head_tokens);
    CHECK(count.lane_tokens == count.head_tokens);
    CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
    CHECK(static_cast<double>(cache.index_bits_read()) == 8 * count.index_bytes_read);
  }
}

TEST_CASE("shadowkv: the authors' figures of Llama-3.1-8B", "[shadowkv]") {
  const Part part = *parse_composition("full+shadowkv", builtin()).selection;
  const std::size_t prompt = 131072;
  const CostShape shape{
      .n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128, .prompt = prompt};
  const ReadCount count = part.reads(shape, 0, prompt);
  // Beside 48 outliers and 4 local chunks, 2048 tokens of 128K, 1.56 %; their values of 32 layers are 128
  // MiB.
  const double chosen = count.head_tokens - (48 + 4) * 8;
  CHECK(chosen / static_cast<double>(prompt) == 0.015625);
  CHECK(chosen * 8 * 128 * 2 * 32 == 134217728);
  // A landmark per 8 tokens: 256 bytes per token and layer, but for chunks without one.
  CHECK(count.index_bytes == static_cast<double>(256 * (prompt - (48 + 4) * 8)));
  CHECK(part.reads(shape, 0, prompt + 100).head_tokens == count.head_tokens + 100);
}

TEST_CASE("shadowkv: the preset stores and reads", "[shadowkv]") {
  const Composition system = parse_composition("shadowkv", builtin());
  CHECK(system.name == "shadowkv");
  CHECK(system.eviction.spec->name == "full");
  CHECK(system.representation->spec->name == "shadowkv_keys");
  CHECK(system.selection->spec->name == "shadowkv");
  const Composition cpu = parse_composition("shadowkv.cpu", builtin());
  CHECK(cpu.representation->params.count("align") == 8);
  CHECK(cpu.selection->params.count("align") == 8);
}

}  // namespace kvsim::policy::test::test_selection_shadowkv
