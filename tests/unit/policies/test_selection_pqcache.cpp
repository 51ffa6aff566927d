// PQCache: product codes of the keys.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "policies/parts/index/k_means.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/selection_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_selection_pqcache {

namespace {

/// Keys as their codes read back, and the sets that follow, in double precision. The centres are k_means'.
class SlowPq {
 public:
  SlowPq(const SelectedCache& cache, const SelectedShape& shape, std::size_t bits, std::size_t sinks,
         std::size_t rounds)
      : cache_(&cache), shape_(shape), sinks_(sinks), half_(shape.dim / 2) {
    for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
      for (std::size_t part = 0; part < 2; ++part) {
        std::vector<float> points;
        for (std::size_t i = sinks; i < shape.prompt; ++i)
          for (std::size_t c = 0; c < half_; ++c) points.push_back(cache.key(i, part * half_ + c, lane));
        const std::uint64_t key =
            combine({shape.run_seed, key_of("pqcache"), static_cast<std::uint64_t>(shape.layer), lane, part});
        centres_.push_back(
            k_means({points.data(), shape.prompt - sinks, half_, half_}, std::size_t{1} << bits, key, rounds)
                .centres);
      }
  }

  std::set<Position> choice(std::size_t lane, std::size_t count, std::size_t recent) const {
    const auto own = static_cast<Position>(cache_->position());
    std::set<Position> out;
    std::vector<Position> candidates;
    for (const Position position : cache_->slots()) {
      if (position < static_cast<Position>(sinks_) || own - position <= static_cast<Position>(recent))
        out.insert(position);
      else
        candidates.push_back(position);
    }
    // Of equal codes the later slot is read; candidates are in the order of slots.
    std::vector<std::pair<double, std::size_t>> scores;
    for (std::size_t i = 0; i < candidates.size(); ++i) scores.emplace_back(0, i);
    for (std::size_t head = lane * shape_.group; head < (lane + 1) * shape_.group; ++head) {
      std::vector<double> weights;
      double sum = 0;
      for (const Position position : candidates) {
        weights.push_back(
            std::exp(SelectedCache::kScale * coded_logit(static_cast<std::size_t>(position), lane, head)));
        sum += weights.back();
      }
      for (std::size_t i = 0; i < weights.size(); ++i) scores[i].first += weights[i] / sum;
    }
    std::sort(scores.rbegin(), scores.rend());
    for (std::size_t i = 0; out.size() < count + 1; ++i) out.insert(candidates[scores[i].second]);
    return out;
  }

 private:
  double coded_logit(std::size_t position, std::size_t lane, std::size_t head) const {
    double logit = 0;
    for (std::size_t part = 0; part < 2; ++part) {
      const std::vector<float>& centres = centres_[lane * 2 + part];
      std::size_t best = 0;
      double least = 1e300;
      for (std::size_t i = 0; i < centres.size() / half_; ++i) {
        double distance = 0;
        for (std::size_t c = 0; c < half_; ++c)
          distance += std::pow(static_cast<double>(cache_->key(position, part * half_ + c, lane)) -
                                   as_half(static_cast<double>(centres[i * half_ + c])),
                               2);
        if (distance < least) {
          least = distance;
          best = i;
        }
      }
      for (std::size_t c = 0; c < half_; ++c)
        logit += static_cast<double>(cache_->query(cache_->position(), part * half_ + c, head)) *
                 as_half(static_cast<double>(centres[best * half_ + c]));
    }
    return logit;
  }

  const SelectedCache* cache_;
  SelectedShape shape_;
  std::size_t sinks_, half_;
  std::vector<std::vector<float>> centres_;
};

}  // namespace

TEST_CASE("pqcache: a worked example", "[pqcache]") {
  // Keys (x, y) with one bit for x and one for y: the centres of x are 0 and 11, of y 0 and 20, whatever
  // k-means starts from that it does not settle elsewhere. Under q = (1, -1) the coded logits are 0, 11, -20,
  // -9 and again 0; exact ones are 1, 10, -21, -7 and -1.
  SelectedShape shape{
      .selection = "pqcache(read=2,bits=1,sinks=0,recent=0,rounds=50)", .prompt = 8, .dim = 2, .length = 9};
  shape.keys = {0, 0, 10, 0, 0, 20, 10, 20, 0, 0, 12, 0, 0, 20, 12, 20, 0, 0};
  shape.queries.assign(18, 0);
  shape.queries[16] = 1;
  shape.queries[17] = -1;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{1, 5, 8});  // (10, 0) and (12, 0) have the same codes
  // Nine tokens of two codes of one bit, and two centres of two 16-bit numbers; own is not ranked.
  CHECK(cache.index_bits() == 9 * 2 + 2 * 2 * 16);
  CHECK(cache.index_bits_read() == 8 * 2 + 2 * 2 * 16);
}

TEST_CASE("pqcache: what is read is what the codes rank highest", "[pqcache]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const SelectedShape shape{.selection = "pqcache(read=25,bits=3,sinks=5,recent=0.3,rounds=6)",
                              .prompt = 90,
                              .n_lanes = 2,
                              .dim = 10,
                              .group = 3,
                              .seed = seed};
    SelectedCache cache(shape);
    const SlowPq slow(cache, shape, 3, 5, 6);
    for (int step = 0; step < 30; ++step) {
      std::vector<std::size_t> victims;
      if (step >= 10) victims = {(static_cast<std::size_t>(step) * 7) % cache.slots().size()};
      if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
      cache.append(victims);
      for (std::size_t lane = 0; lane < 2; ++lane) {
        const std::set<Position> expected = slow.choice(lane, 25, 6);
        for (std::size_t g = 0; g < 3; ++g) CHECK(cache.read(lane * 3 + g) == expected);
      }
    }
  }
}

TEST_CASE("pqcache: limits", "[pqcache]") {
  SelectedCache all({.selection = "pqcache(read=100%)", .prompt = 200});
  all.append();
  CHECK(all.read().size() == 201);
  CHECK(all.index_bits_read() == 0);
  // 63 keys cannot have 64 centres.
  SelectedCache few({.selection = "pqcache(read=10)", .prompt = 95});
  few.append();
  CHECK(few.read().size() == 96);
  CHECK(few.index_bits() == 0);
  // Sinks are read, whatever read= says.
  SelectedCache sinks({.selection = "pqcache(read=1)", .prompt = 100});
  sinks.append();
  CHECK(sinks.read().size() == 33);
  // As many centres as tokens: the highest logits.
  SelectedCache exact(
      {.selection = "pqcache(read=9,bits=6,parts=1,sinks=0,recent=0)", .prompt = 64, .dim = 8});
  exact.append();
  std::vector<Position> order;
  for (Position position = 0; position < 64; ++position) order.push_back(position);
  std::sort(order.begin(), order.end(), [&](Position a, Position b) {
    return exact.logit(64, static_cast<std::size_t>(a)) > exact.logit(64, static_cast<std::size_t>(b));
  });
  std::set<Position> expected(order.begin(), order.begin() + 9);
  expected.insert(64);
  CHECK(exact.read() == expected);
}

TEST_CASE("pqcache: 12 bits per token and KV head, and centres of 16 KiB", "[pqcache]") {
  const CostShape shape{.n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128};
  const Part part = *parse_composition("full+pqcache", builtin()).selection;
  CHECK(part.reads(shape, 0, 10032).index_bytes == 8 * (10000 * 1.5 + 16384));
}

}  // namespace kvsim::policy::test::test_selection_pqcache
