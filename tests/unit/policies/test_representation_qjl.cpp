// Tests signs of products with random directions: qjl.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_qjl {

namespace {

using Numbers = std::vector<double>;

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Each direction of a block without its part along the earlier ones, at length sqrt(dim).
std::vector<Numbers> slow_directions(std::size_t sketch, std::size_t dim, std::uint64_t seed,
                                     bool orthogonal) {
  std::vector<Numbers> out;
  for (std::size_t i = 0; i < sketch; ++i) {
    Numbers row;
    for (std::size_t c = 0; c < dim; ++c) row.push_back(normal(combine({seed, key_of("qjl"), i, c})));
    if (orthogonal) {
      for (int twice = 0; twice < 2; ++twice)
        for (std::size_t j = i - i % dim; j < i; ++j) {
          const double along = dot(row, out[j]) / dot(out[j], out[j]);
          for (std::size_t c = 0; c < dim; ++c) row[c] -= along * out[j][c];
        }
      const double length = std::sqrt(dot(row, row));
      for (double& x : row) x *= std::sqrt(static_cast<double>(dim)) / length;
    }
    out.push_back(row);
  }
  return out;
}

struct SlowToken {
  Numbers key, value;
};

struct SlowRule {
  std::size_t sketch = 256, outliers = 8, outlier_sketch = 128, group = 32, buffer = 128;
  bool orthogonal = true;
  int bits = 2;
};

/// One lane, token by token.
class SlowQjl {
 public:
  SlowQjl(const RepresentedCache& cache, const CacheShape& shape, const SlowRule& rule, std::size_t lane)
      : cache_(&cache),
        shape_(shape),
        rule_(rule),
        lane_(lane),
        directions_(slow_directions(rule.sketch, shape.dim, shape.run_seed, rule.orthogonal)) {
    for (std::size_t p = 0; p < shape.prompt; p += shape.every) append(p, {});
  }
  void append(std::size_t p, const std::vector<std::size_t>& leaving) {
    for (const std::size_t gone : leaving) {
      tokens_.erase(gone);
      std::erase(waiting_, gone);
      std::erase(exact_values_, gone);
    }
    SlowToken& token = tokens_[p];
    for (std::size_t c = 0; c < shape_.dim; ++c) {
      token.key.push_back(static_cast<double>(cache_->recorded_key(p, c, lane_)));
      token.value.push_back(static_cast<double>(cache_->recorded_value(p, c, lane_)));
    }
    waiting_.push_back(p);
    exact_values_.push_back(p);
    if (waiting_.size() == rule_.buffer) {
      for (std::size_t first = 0; first < rule_.buffer; first += rule_.group) code_keys(first);
      waiting_.clear();
    }
    if (exact_values_.size() > rule_.buffer) {
      Numbers& value = tokens_[exact_values_[0]].value;
      for (std::size_t first = 0; first < shape_.dim; first += rule_.group) {
        const auto begin = value.begin() + static_cast<std::ptrdiff_t>(first);
        std::ranges::copy(slowly_coded({begin, begin + static_cast<std::ptrdiff_t>(rule_.group)}, rule_.bits),
                          begin);
      }
      exact_values_.erase(exact_values_.begin());
    }
  }
  const std::map<std::size_t, SlowToken>& tokens() const { return tokens_; }

 private:
  void code_keys(std::size_t first) {
    std::vector<std::pair<double, std::size_t>> norms;
    for (std::size_t c = 0; c < shape_.dim; ++c) {
      double squares = 0;
      for (std::size_t i = first; i < first + rule_.group; ++i)
        squares += std::pow(tokens_[waiting_[i]].key[c], 2);
      norms.emplace_back(-squares, c);
    }
    std::ranges::sort(norms);
    std::set<std::size_t> outliers;
    for (std::size_t i = 0; i < rule_.outliers; ++i) outliers.insert(norms[i].second);
    for (std::size_t i = first; i < first + rule_.group; ++i) {
      Numbers& key = tokens_[waiting_[i]].key;
      Numbers inside(key.size()), outside(key.size());
      for (std::size_t c = 0; c < key.size(); ++c) (outliers.contains(c) ? outside : inside)[c] = key[c];
      const double whole = as_half(std::sqrt(dot(key, key))),
                   apart = as_half(std::sqrt(dot(outside, outside)));
      inside = read(inside, std::sqrt(std::max(0.0, whole * whole - apart * apart)), rule_.sketch);
      outside = read(outside, apart, rule_.outlier_sketch);
      for (std::size_t c = 0; c < key.size(); ++c) key[c] = (outliers.contains(c) ? outside : inside)[c];
    }
  }
  Numbers read(const Numbers& part, double norm, std::size_t sketch) const {
    Numbers out(part.size());
    for (std::size_t i = 0; i < sketch; ++i) {
      const double sign = dot(directions_[i], part) > 0 ? 1 : -1;
      for (std::size_t c = 0; c < out.size(); ++c)
        out[c] +=
            sign * directions_[i][c] * norm * std::sqrt(std::numbers::pi / 2) / static_cast<double>(sketch);
    }
    return out;
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  SlowRule rule_;
  std::size_t lane_;
  std::vector<Numbers> directions_;
  std::vector<std::size_t> waiting_, exact_values_;
  std::map<std::size_t, SlowToken> tokens_;
};

/// Products of a query with what a key reads back as, over seeds.
struct Estimates {
  double mean = 0, deviation = 0, standard_error = 0;
};

Estimates estimates(const std::string& parameters, const std::vector<float>& key, const Numbers& query,
                    std::uint64_t first_seed, std::size_t seeds) {
  Numbers products;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    const RepresentedCache cache({.representation = "qjl(group=1,buffer=1," + parameters + ")",
                                  .prompt = 1,
                                  .dim = key.size(),
                                  .length = 1,
                                  .run_seed = seed,
                                  .keys = key,
                                  .values = key});
    Numbers read;
    for (std::size_t c = 0; c < key.size(); ++c) read.push_back(static_cast<double>(cache.key(0, c)));
    products.push_back(dot(query, read));
  }
  Estimates out;
  for (const double x : products) out.mean += x / static_cast<double>(seeds);
  for (const double x : products) out.deviation += std::pow(x - out.mean, 2) / static_cast<double>(seeds - 1);
  out.deviation = std::sqrt(out.deviation);
  out.standard_error = out.deviation / std::sqrt(static_cast<double>(seeds));
  return out;
}

// Its length, 5, is a 16-bit float; the product with the query is 7.5.
const std::vector<float> kKey{1, -2, 2, 4, 0, 0, 0, 0};
const Numbers kQuery{0.5, 1, 0.5, 2, 1, -1, 0.5, 0.25};
constexpr double kProduct = 7.5;

}  // namespace

TEST_CASE("qjl worked by hand: keys of one channel") {
  // An orthogonal direction of one channel is 1 or -1, so every direction with its sign is that of the key,
  // and a key reads as sqrt(pi/2) times itself. A key of 0 has the norm 0.
  RepresentedCache cache({.representation = "qjl(sketch=3,outliers=0,group=1,buffer=2,bits=1)",
                          .prompt = 3,
                          .dim = 1,
                          .length = 5,
                          .keys = {2, 0, -3, 4, 5},
                          .values = {1, 2, 3, 4, 5}});
  const double factor = std::sqrt(std::numbers::pi / 2);
  CHECK(static_cast<double>(cache.key(0, 0)) == Approx(2 * factor));
  CHECK(cache.key(1, 0) == 0);
  CHECK(cache.key(2, 0) == -3);
  // Three signs and a norm per coded key; a bit and two 16-bit numbers for the value before the window of
  // two.
  CHECK(cache.ledger() == Ledger{.exact = 16 + 2 * 16, .codes = 2 * 3 + 1, .parameters = 2 * 16 + 32});
  cache.append();
  CHECK(static_cast<double>(cache.key(2, 0)) == Approx(-3 * factor));
  CHECK(static_cast<double>(cache.key(3, 0)) == Approx(4 * factor));
  CHECK(cache.ledger() == Ledger{.exact = 2 * 16, .codes = 4 * 3 + 2, .parameters = 4 * 16 + 2 * 32});
}

TEST_CASE("qjl equals a slow version of its definition, while tokens come and leave") {
  const std::pair<const char*, SlowRule> rules[] = {
      {"qjl(sketch=20,outliers=2,outlier_sketch=9,group=4,buffer=16)", {20, 2, 9, 4, 16, true, 2}},
      {"qjl(sketch=5,outliers=0,group=8,buffer=8,bits=4)", {5, 0, 1, 8, 8, true, 4}},
      {"qjl(sketch=16,outliers=8,outlier_sketch=16,group=2,buffer=6,orthogonal=false,bits=16)",
       {16, 8, 16, 2, 6, false, 16}}};
  for (const auto& [text, rule] : rules)
    for (const std::size_t every : {1U, 3U}) {
      const CacheShape shape{.representation = text,
                             .prompt = 50,
                             .n_lanes = 2,
                             .dim = 8,
                             .length = 120,
                             .run_seed = 5,
                             .every = every};
      RepresentedCache cache(shape);
      std::vector<SlowQjl> slow;
      for (std::size_t lane = 0; lane < 2; ++lane) slow.emplace_back(cache, shape, rule, lane);
      for (std::size_t p = shape.prompt; p < shape.length; ++p) {
        CAPTURE(text, every, p);
        for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, slow[lane], lane);
        if (p < 80) CHECK(cache.ledger() == cache.closed_form());
        std::vector<std::size_t> victims, leaving;
        if (p >= 80) victims.push_back(7 * p % 23);
        if (p >= 80 && p % 7 == 0) victims.push_back(24);
        for (const std::size_t slot : victims)
          leaving.push_back(static_cast<std::size_t>(cache.rows().positions()[slot]));
        cache.append(victims);
        for (SlowQjl& lane : slow) lane.append(p, leaving);
      }
    }
}

TEST_CASE("qjl's group of outlier channels is counted as long as one of its tokens is held") {
  RepresentedCache cache({.representation = "qjl(sketch=16,outliers=2,outlier_sketch=8,group=2,buffer=4)",
                          .prompt = 4,
                          .length = 9});
  CHECK(cache.ledger().indices == 2 * 2 * 8);
  cache.append({0});
  CHECK(cache.ledger().indices == 2 * 2 * 8);
  cache.append({1});
  CHECK(cache.ledger().indices == 1 * 2 * 8);
}

TEST_CASE("qjl's sizes: 3.27 bits per number of a key, 3.13 of keys and values") {
  const Part qjl = *parse_composition("full+qjl", builtin()).representation;
  const StorageShape shape{8, 128, 128, 16};
  // What one more buffer of coded tokens takes; windows stay as they are.
  const double bits =
      static_cast<double>(qjl.ledger(shape, 1280, 0).bits() - qjl.ledger(shape, 1152, 0).bits());
  const double keys = 256 + 128 + 16 + 16 + 8 * 8 / 32.0, values = 2 * 128 + 32 * 4;
  CHECK(bits == 128 * 8 * (keys + values));
  CHECK(keys / 128 == Approx(3.27).margin(0.005));
  CHECK((keys + values) / 256 == Approx(3.13).margin(0.005));
}

TEST_CASE("a product with independent directions is exact in the mean over seeds") {
  const Estimates of = estimates("outliers=0,orthogonal=false,sketch=64", kKey, kQuery, 0, 1000);
  CHECK(std::abs(of.mean - kProduct) < 3 * of.standard_error);
}

TEST_CASE("a product with orthogonal directions is too large by what their length says, and spreads less") {
  // The mean |x| of a coordinate of a direction of length sqrt(d) is sqrt(d) G(d/2) / (sqrt(pi) G((d+1)/2)),
  // that of a standard normal number sqrt(2/pi); at d = 8 the first is 1.032 times the second.
  const double d = 8, length = std::sqrt(d) * std::tgamma(d / 2) /
                               (std::sqrt(std::numbers::pi) * std::tgamma((d + 1) / 2));
  const double factor = length * std::sqrt(std::numbers::pi / 2);
  CHECK(factor == Approx(1 + 1 / (4 * d)).epsilon(1e-3));
  const Estimates orthogonal = estimates("outliers=0,sketch=64", kKey, kQuery, 0, 2000),
                  independent = estimates("outliers=0,orthogonal=false,sketch=64", kKey, kQuery, 0, 1000);
  CHECK(std::abs(orthogonal.mean - factor * kProduct) < 3 * orthogonal.standard_error);
  CHECK(std::abs(orthogonal.mean - kProduct) > 3 * orthogonal.standard_error);
  CHECK(orthogonal.deviation < independent.deviation);
}

TEST_CASE("the deviation of a product falls with the square root of the number of signs") {
  // The logarithm of a ratio of two variances of n draws each deviates by sqrt(4 / n) in the mean.
  constexpr std::size_t kSeeds = 1000;
  const Estimates few = estimates("outliers=0,orthogonal=false,sketch=16", kKey, kQuery, 0, kSeeds),
                  many = estimates("outliers=0,orthogonal=false,sketch=64", kKey, kQuery, 5000, kSeeds);
  const double ratio = 2 * std::log(few.deviation / many.deviation);
  CHECK(std::abs(ratio - std::log(4.0)) < 3 * std::sqrt(4.0 / kSeeds));
}

TEST_CASE("signs of their own for outlier channels make products spread less") {
  std::vector<float> key(32);
  Numbers query(32);
  for (std::size_t c = 0; c < 32; ++c) {
    key[c] = static_cast<float>(normal(combine({1, c})));
    query[c] = normal(combine({2, c}));
  }
  key[3] = 12;
  key[20] = -9;
  const Estimates together = estimates("outliers=0,sketch=96", key, query, 0, 300),
                  apart = estimates("outliers=2,sketch=64,outlier_sketch=32", key, query, 0, 300);
  CHECK(apart.deviation < together.deviation);  // at as many signs
}

TEST_CASE("qjl has a code for numbers that are not finite, and refuses what it cannot do") {
  const float infinity = std::numeric_limits<float>::infinity();
  const RepresentedCache cache({.representation = "qjl(group=1,buffer=1,outliers=1,bits=16)",
                                .prompt = 1,
                                .length = 1,
                                .keys = {infinity, std::nanf(""), -infinity, 1},
                                .values = {1, 2, 3, 4}});
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(std::isfinite(cache.key(0, c)));
    CHECK(cache.value(0, c) == cache.recorded_value(0, c));
  }
  const auto refuses = [](const std::string& text, const std::string& words) {
    CHECK_THROWS_WITH(RepresentedCache({.representation = text, .prompt = 1}), Catch::Contains(words));
  };
  refuses("qjl(buffer=100)", "multiple of the group");
  refuses("qjl(outlier_sketch=257)", "no more directions");
  refuses("qjl(group=4)", "no 8 channels, but 4");
  refuses("qjl(group=8,outliers=0)", "do not divide a vector of 4");
}

}  // namespace kvsim::policy::test::test_representation_qjl
