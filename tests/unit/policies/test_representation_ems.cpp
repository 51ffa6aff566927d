// Tests the merging of candidates into what is like them in key and value: ems_merge.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_ems {

namespace {

using Vector = std::vector<double>;

double cosine(const Vector& a, const Vector& b) {
  double product = 0, of_a = 0, of_b = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    product += a[c] * b[c];
    of_a += a[c] * a[c];
    of_b += b[c] * b[c];
  }
  return product / std::sqrt(of_a * of_b);
}

struct SlowToken {
  Vector key{}, value{};
  double score = 0;
};

struct SlowRule {
  double tau = 0.6, candidates = 4;
  std::size_t window = 32;
  bool by_score = true;
};

/// What a lane holds after the cut, from the definition.
std::map<std::size_t, SlowToken> slow_ems(const RepresentedCache& cache, const CacheShape& shape,
                                          const SlowRule& rule, std::size_t lane) {
  std::map<std::size_t, SlowToken> staying, leaving;
  std::vector<double> all(shape.prompt), recent(shape.prompt);
  std::vector<double> score(shape.prompt);
  for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head) {
    double mean_all = 0, mean_recent = 0;
    for (std::size_t p = 0; p < shape.prompt; ++p) {
      all[p] = recent[p] = 0;
      for (std::size_t i = p; i < shape.prompt; ++i) {
        all[p] += static_cast<double>(cache.attention(i, head)[p]);
        if (i + rule.window >= shape.prompt) recent[p] += static_cast<double>(cache.attention(i, head)[p]);
      }
      mean_all += all[p] / static_cast<double>(shape.prompt);
      mean_recent += recent[p] / static_cast<double>(shape.prompt);
    }
    for (std::size_t p = 0; p < shape.prompt; ++p)
      score[p] += std::max(all[p], recent[p] * mean_all / mean_recent);
  }
  for (std::size_t p = 0; p < shape.prompt; ++p) {
    SlowToken token{.score = score[p]};
    for (std::size_t c = 0; c < shape.dim; ++c) {
      token.key.push_back(static_cast<double>(cache.recorded_key(p, c, lane)));
      token.value.push_back(static_cast<double>(cache.recorded_value(p, c, lane)));
    }
    (p % shape.every == 0 ? staying : leaving)[p] = token;
  }
  std::set<std::pair<double, std::size_t>, std::greater<>> ranked;
  for (const auto& [p, token] : leaving) ranked.emplace(token.score, p);
  auto merged = static_cast<std::ptrdiff_t>(rule.candidates * static_cast<double>(staying.size())) -
                static_cast<std::ptrdiff_t>(staying.size());
  std::map<std::size_t, std::vector<SlowToken>> joining;
  for (const auto& [of, p] : ranked) {
    if (merged-- <= 0) break;
    double best = -2;
    std::size_t to = 0;
    for (const auto& [position, token] : staying) {
      const double keys = cosine(leaving[p].key, token.key);
      const double product = keys * cosine(leaving[p].value, token.value);
      if (keys > 0 && product > best) {
        best = product;
        to = position;
      }
    }
    if (best >= rule.tau) joining[to].push_back(leaving[p]);
  }
  for (auto& [position, tokens] : joining) {
    SlowToken& center = staying[position];
    tokens.push_back(center);
    for (std::size_t c = 0; c < shape.dim; ++c) {
      double key = 0, value = 0, weights = 0;
      for (const SlowToken& token : tokens) {
        const double weight = rule.by_score ? token.score : 1;
        key += weight * token.key[c];
        value += weight * token.value[c];
        weights += weight;
      }
      center.key[c] = key / weights;
      center.value[c] = value / weights;
    }
  }
  return staying;
}

}  // namespace

TEST_CASE("ems_merge equals a slow version of its definition") {
  const std::vector<std::pair<std::string, SlowRule>> rules{
      {"ems_merge", {}},
      {"ems_merge(tau=0,window=5)", {0, 4, 5}},
      {"ems_merge(tau=0.2,candidates=2.5,weights=equal)", {0.2, 2.5, 32, false}},
      {"ems_merge(tau=-1,candidates=1000000)", {-1, 1e6}},
      {"ems_merge(tau=-1,candidates=1.2,window=200)", {-1, 1.2, 200}},
  };
  for (const auto& [text, rule] : rules)
    for (const bool columns : {false, true}) {
      const CacheShape shape{.representation = text,
                             .prompt = 90,
                             .n_lanes = 2,
                             .dim = 3,
                             .group = 2,
                             .columns = columns,
                             .length = 90,
                             .every = 6};
      const RepresentedCache cache(shape);
      for (std::size_t lane = 0; lane < 2; ++lane)
        for (const auto& [position, token] : slow_ems(cache, shape, rule, lane))
          for (std::size_t c = 0; c < shape.dim; ++c) {
            CAPTURE(text, lane, position, c);
            CHECK(static_cast<double>(cache.key(position, c, lane)) == Approx(token.key[c]).margin(1e-4));
            CHECK(static_cast<double>(cache.value(position, c, lane)) == Approx(token.value[c]).margin(1e-4));
          }
    }
}

TEST_CASE("ems_merge worked by hand: centres, candidates, and what the centre of zeros takes") {
  // Tokens 0 and 4 stay; every row attends evenly, so that of the others 1, 2, 3 the earlier score more. With
  // room for four, 1 and 2 are candidates. Token 1 is like 0 in key and value. Token 2 is opposite to 4 in
  // both: the product of its cosines is 1, and it is dropped.
  CacheShape shape{.representation = "ems_merge(candidates=2,weights=equal)",
                   .prompt = 8,
                   .dim = 2,
                   .length = 8,
                   .scale = 1e-6F,
                   .every = 4};
  shape.keys = {1e-3F, 0, 3e-3F, 0, 0, -2e-3F, 1e-3F, 0, 0, 1e-3F, 1e-3F, 0, 1e-3F, 0, 1e-3F, 0};
  shape.values = {2, 0, 4, 0, 0, -5, 100, 0, 0, 7, 100, 0, 100, 0, 100, 0};
  const RepresentedCache cache(shape);
  CHECK(cache.key(0, 0) == Approx(2e-3F));
  CHECK(cache.value(0, 0) == 3);
  CHECK(cache.value(4, 1) == 7);
  CHECK(cache.value(4, 0) == 0);
  // With three candidates' room more, token 3 joins 0 as well; 5, 6 and 7 are no candidates.
  shape.representation = "ems_merge(candidates=2.5,weights=equal)";
  CHECK(RepresentedCache(shape).value(0, 0) == Approx((2 + 4 + 100) / 3.0));
}

TEST_CASE("ems_merge above every product, or without a candidate, is its eviction") {
  for (const char* text : {"ems_merge(tau=1.5)", "ems_merge(tau=-1,candidates=1)"}) {
    RepresentedCache cache({.representation = text, .prompt = 60, .n_lanes = 2, .dim = 2, .every = 5});
    for (std::size_t step = 0; step < 10; ++step) cache.append({step});
    CHECK(cache.exact_keys() == 12);
    CHECK(cache.exact_values() == 12);
  }
  const RepresentedCache merged(
      {.representation = "ems_merge(tau=-1)", .prompt = 60, .n_lanes = 2, .dim = 2, .every = 5});
  CHECK(merged.exact_keys() < 12);
}

}  // namespace kvsim::policy::test::test_representation_ems
