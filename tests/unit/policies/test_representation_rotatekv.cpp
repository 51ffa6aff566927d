// Tests codes of rotated channels: rotatekv, and the Walsh-Hadamard transform.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "policies/builtin.hpp"
#include "policies/parts/codes/orthogonal.hpp"
#include "sim/base/rotary.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_rotatekv {
namespace {

using Numbers = std::vector<double>;

Numbers slow_hadamard(const Numbers& x) {
  Numbers out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j)
      out[i] += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * x[j] / std::sqrt(static_cast<double>(x.size()));
  return out;
}

/// With a code of 0, clipped.
Numbers slow_integer(Numbers group, int bits, double clip) {
  const auto [low, high] = std::ranges::minmax(group);
  const double most = std::pow(2, bits) - 1, least = std::min(low * clip, 0.0);
  const double step = as_half((std::max(high * clip, 0.0) - least) / most);
  const double zero = step > 0 ? std::nearbyint(-least / step) : 0;
  for (double& x : group)
    x = step > 0 ? (std::clamp(std::nearbyint(x / step) + zero, 0.0, most) - zero) * step : 0;
  return group;
}

/// Half-split pairs, turned by `sign` times the angle of the position.
void slow_turn(Numbers& head, std::size_t position, const std::vector<float>& inv_freq, double sign) {
  for (std::size_t pair = 0; pair < inv_freq.size(); ++pair) {
    const double angle = sign * static_cast<double>(static_cast<float>(position) * inv_freq[pair]);
    double &a = head[pair], &b = head[pair + inv_freq.size()];
    const double x = a, y = b;
    a = x * std::cos(angle) - y * std::sin(angle);
    b = y * std::cos(angle) + x * std::sin(angle);
  }
}

struct SlowRule {
  int bits = 2;
  std::size_t group = 128, heads = 4;
  double clip = 0.8;
  bool hadamard = true, reorder = true, before = true;
  std::size_t first = 4, small = 16;
};

/// A cache of one unit without evictions, in double.
class SlowRotate {
 public:
  SlowRotate(const RepresentedCache& cache, const CacheShape& shape, const SlowRule& rule)
      : cache_(&cache), shape_(shape), rule_(rule) {
    Numbers sums(shape.n_lanes * shape.dim);
    for (std::size_t p = 0; p < shape.prompt; ++p) {
      const Numbers key = spread(p);
      for (std::size_t c = 0; c < key.size(); ++c) sums[c] += key[c];
    }
    order_.resize(sums.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (rule.reorder) std::ranges::sort(order_, [&](auto i, auto j) { return sums[i] < sums[j]; });
    std::vector<std::pair<double, std::size_t>> norms;
    for (std::size_t p = 0; p < shape.prompt; p += shape.every) {
      if (p < rule.first * shape.every) {
        sinks_.insert(p);
        continue;
      }
      double squares = 0;
      for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
        for (std::size_t c = 0; c < shape.dim; ++c)
          squares += std::pow(static_cast<double>(cache.recorded_key(p, c, lane)), 2);
      norms.emplace_back(squares, p);
    }
    std::ranges::sort(norms);
    for (std::size_t i = 0; i < std::min(rule.small, norms.size()); ++i) sinks_.insert(norms[i].second);
  }
  bool exact(std::size_t p) const { return p < shape_.prompt && sinks_.contains(p); }

  /// The keys of all lanes.
  Numbers key(std::size_t p) const {
    const Numbers spread = this->spread(p);
    Numbers sorted(spread.size()), out(spread.size());
    for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = spread[order_[i]];
    sorted = coded(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) out[order_[i]] = sorted[i];
    out = turned(out, std::min(rule_.heads, shape_.n_lanes) * shape_.dim);
    if (rule_.before) rotate_heads(out, p, 1);
    return out;
  }
  Numbers value(std::size_t p, std::size_t lane) const {
    Numbers out;
    for (std::size_t c = 0; c < shape_.dim; ++c)
      out.push_back(static_cast<double>(cache_->recorded_value(p, c, lane)));
    return turned(coded(turned(out, shape_.dim)), shape_.dim);
  }

 private:
  Numbers spread(std::size_t p) const {
    Numbers key;
    for (std::size_t lane = 0; lane < shape_.n_lanes; ++lane)
      for (std::size_t c = 0; c < shape_.dim; ++c)
        key.push_back(static_cast<double>(cache_->recorded_key(p, c, lane)));
    if (rule_.before) rotate_heads(key, p, -1);
    return turned(key, std::min(rule_.heads, shape_.n_lanes) * shape_.dim);
  }
  void rotate_heads(Numbers& key, std::size_t p, double sign) const {
    for (std::size_t lane = 0; lane < shape_.n_lanes; ++lane) {
      const auto begin = key.begin() + static_cast<std::ptrdiff_t>(lane * shape_.dim);
      Numbers head(begin, begin + static_cast<std::ptrdiff_t>(shape_.dim));
      slow_turn(head, p, shape_.inv_freq, sign);
      std::ranges::copy(head, begin);
    }
  }
  Numbers turned(const Numbers& x, std::size_t width) const {
    if (!rule_.hadamard) return x;
    Numbers out;
    for (std::size_t first = 0; first < x.size(); first += width) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
      std::ranges::copy(slow_hadamard({begin, begin + static_cast<std::ptrdiff_t>(width)}),
                        std::back_inserter(out));
    }
    return out;
  }
  Numbers coded(const Numbers& x) const {
    Numbers out;
    const std::size_t group = std::min(rule_.group, x.size());
    for (std::size_t first = 0; first < x.size(); first += group) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
      std::ranges::copy(
          slow_integer({begin, begin + static_cast<std::ptrdiff_t>(group)}, rule_.bits, rule_.clip),
          std::back_inserter(out));
    }
    return out;
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  SlowRule rule_;
  std::vector<std::size_t> order_;
  std::set<std::size_t> sinks_;
};

/// A scale in the middle between two 16-bit floats may go either way in float and in double, which moves what
/// is read by a part in 1,024 of its length.
double margin_of(const Numbers& vector) {
  double squares = 0;
  for (const double x : vector) squares += x * x;
  return std::sqrt(squares) / 1024;
}

void compare(const RepresentedCache& cache, const CacheShape& shape, const SlowRotate& slow) {
  for (const Position position : cache.rows().positions()) {
    const auto p = static_cast<std::size_t>(position);
    const Numbers key = slow.key(p);
    for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) {
      const Numbers value = slow.value(p, lane);
      for (std::size_t c = 0; c < shape.dim; ++c) {
        CAPTURE(p, lane, c, slow.exact(p));
        REQUIRE(static_cast<double>(cache.key(p, c, lane)) ==
                Approx(slow.exact(p) ? cache.recorded_key(p, c, lane) : key[lane * shape.dim + c])
                    .margin(margin_of(key)));
        REQUIRE(static_cast<double>(cache.value(p, c, lane)) ==
                Approx(slow.exact(p) ? cache.recorded_value(p, c, lane) : value[c]).margin(margin_of(value)));
      }
    }
  }
}

const std::vector<float> kInvFreq{1, 0.3F, 0.1F, 0.03F};

/// Gaussian keys of which three channels of each head have a mean far from 0 before they are rotated to their
/// positions.
CacheShape outlier_keys(std::size_t tokens, std::size_t n_lanes, std::size_t dim, float mean) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  CacheShape shape{.prompt = tokens, .n_lanes = n_lanes, .dim = dim, .length = tokens};
  for (std::size_t pair = 0; pair < dim / 2; ++pair)
    shape.inv_freq.push_back(
        static_cast<float>(std::pow(10000, -static_cast<double>(pair) / static_cast<double>(dim / 2))));
  for (std::size_t p = 0; p < tokens; ++p)
    for (std::size_t lane = 0; lane < n_lanes; ++lane) {
      std::vector<float> key(dim);
      for (float& x : key) x = normal(random);
      // Channels that turn slowly, or hardly at all, as those of models do.
      for (std::size_t outlier = 0; outlier < 3; ++outlier)
        key[dim - 1 - (5 * outlier + 3 * lane) % (dim / 4)] += outlier == 1 ? -mean : mean;
      rotate({.inv_freq = shape.inv_freq}, p, dim, key);
      shape.keys.insert(shape.keys.end(), key.begin(), key.end());
    }
  shape.values = shape.keys;
  return shape;
}

double key_error(CacheShape shape, const std::string& representation) {
  shape.representation = representation;
  const RepresentedCache cache(shape);
  double error = 0, all = 0;
  for (std::size_t p = 0; p < shape.prompt; ++p)
    for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
      for (std::size_t c = 0; c < shape.dim; ++c) {
        const double x = cache.recorded_key(p, c, lane);
        error += (x - cache.key(p, c, lane)) * (x - cache.key(p, c, lane));
        all += x * x;
      }
  return std::sqrt(error / all);
}

}  // namespace

TEST_CASE("the Walsh-Hadamard transform is its own inverse and keeps lengths") {
  std::vector<float> x{1, 2, 3, 4};
  hadamard(x);
  CHECK(x == std::vector<float>{5, -1, -2, 0});
  hadamard(x);
  CHECK(x == std::vector<float>{1, 2, 3, 4});
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {1U, 2U, 8U, 64U, 512U}) {
    std::vector<float> numbers(n);
    for (float& number : numbers) number = normal(random);
    std::vector<float> turned = numbers;
    hadamard(turned);
    const Numbers slow = slow_hadamard({numbers.begin(), numbers.end()});
    double before = 0, after = 0;
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(static_cast<double>(turned[i]) == Approx(slow[i]).margin(1e-5));
      before += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
      after += static_cast<double>(turned[i]) * static_cast<double>(turned[i]);
    }
    CHECK(after == Approx(before).epsilon(1e-5));
    hadamard(turned);
    for (std::size_t i = 0; i < n; ++i)
      CHECK(static_cast<double>(turned[i]) == Approx(static_cast<double>(numbers[i])).margin(1e-5));
  }
}

TEST_CASE("rotatekv worked by hand") {
  // Without rotation to positions. The key 5, -1, -2, 0 is 1, 2, 3, 4 after its transform, and the prompt's
  // sums of those are in the same order. In groups of two, 2 bits and a code of 0: 1, 2 has steps of 2/3 and
  // becomes 4/3 (1.5 of them rounds to the even 2), 2; 3, 4 has steps of 4/3: 3 is 2.25 of them. The value is
  // the same vector.
  const RepresentedCache cache({.representation = "rotatekv(group=2,clip=1,first=0,small=0)",
                                .prompt = 1,
                                .length = 1,
                                .keys = {5, -1, -2, 0},
                                .values = {5, -1, -2, 0}});
  const double a = as_half(2.0 / 3), b = as_half(4.0 / 3);
  const Numbers read = slow_hadamard({(1 / a > 1.5 ? 2 : 1) * a, 3 * a, 2 * b, 3 * b});
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(static_cast<double>(cache.key(0, c)) == Approx(read[c]));
    CHECK(static_cast<double>(cache.value(0, c)) == Approx(read[c]));
  }
  // Four numbers in 2 bits and two groups with a scale and the code of 0, of keys and of values; 4 channels
  // of 16 bits in the order.
  CHECK(cache.ledger() == Ledger{.codes = 2 * 4 * 2, .parameters = 2 * 2 * 18, .shared = 4 * 16});
}

TEST_CASE("rotatekv equals a slow version of its definition") {
  const std::pair<const char*, SlowRule> rules[] = {
      {"rotatekv", {}},
      {"rotatekv(group=8,heads=2)", {.group = 8, .heads = 2}},
      {"rotatekv(group=4,bits=3,clip=1,heads=1)", {.bits = 3, .group = 4, .heads = 1, .clip = 1}},
      {"rotatekv(group=8,positions=after)", {.group = 8, .before = false}},
      {"rotatekv(group=8,hadamard=false)", {.group = 8, .hadamard = false}},
      {"rotatekv(group=8,reorder=false,first=0,small=3)",
       {.group = 8, .reorder = false, .first = 0, .small = 3}}};
  for (const auto& [text, rule] : rules)
    for (const std::size_t every : {1U, 2U}) {
      CAPTURE(text, every);
      CacheShape shape{
          .representation = text, .prompt = 60, .n_lanes = 4, .dim = 8, .length = 81, .every = every};
      shape.inv_freq = kInvFreq;
      RepresentedCache cache(shape);
      const SlowRotate slow(cache, shape, rule);
      for (std::size_t p = shape.prompt; p + 1 < shape.length; ++p) {
        cache.append();
        CHECK(cache.ledger() == cache.closed_form());
      }
      compare(cache, shape, slow);
      const Ledger before = cache.ledger();
      cache.append({0});  // the first token is exact, or has a code
      compare(cache, shape, slow);
      CHECK((cache.ledger().exact < before.exact) == slow.exact(0));
    }
}

TEST_CASE("rotatekv's sizes: 2.25 bits with a 16-bit zero, 2.14 with one of two bits") {
  const Part code = *parse_composition("full+rotatekv(first=0,small=0)", builtin()).representation;
  const StorageShape shape{32, 128, 128, 16};
  const Ledger ledger = code.ledger(shape, 1000, 24);
  CHECK(static_cast<double>(ledger.bits()) == (2 + 18.0 / 128) * 1024 * 32 * 256);
  CHECK(ledger.shared == 32 * 128 * 16);
  // At most 20 tokens stay exact, each with its position.
  const Part sinks = *parse_composition("full+rotatekv", builtin()).representation;
  CHECK(sinks.ledger(shape, 1000, 24).exact == exact_ledger(shape, 20).exact);
  CHECK(sinks.ledger(shape, 1000, 24).indices == 20 * 32);
  CHECK(sinks.ledger(shape, 7, 24).exact == exact_ledger(shape, 7).exact);
}

TEST_CASE("rotatekv with 16 bits, and exact tokens, store numbers as they come") {
  RepresentedCache cache({.representation = "rotatekv(bits=16)", .prompt = 40, .n_lanes = 3, .length = 60});
  for (int i = 0; i < 20; ++i) cache.append();
  CHECK(cache.exact_keys() == 60);
  CHECK(cache.exact_values() == 60);
  CHECK(cache.ledger() == exact_ledger({3, 4, 4, 16}, 60));
  CHECK(cache.ledger() == cache.closed_form());
  // More bits, smaller error: the way there and back loses nothing but rounding.
  const CacheShape keys = outlier_keys(50, 4, 32, 10);
  const auto error = [&](int bits) {
    return key_error(keys, "rotatekv(clip=1,bits=" + std::to_string(bits) + ",first=0,small=0)");
  };
  CHECK(error(4) < error(2));
  CHECK(error(8) < 0.01);
}

TEST_CASE("keys with outlier channels: a rotation helps, and sorting what is rotated helps more") {
  const auto error = [](const CacheShape& keys, const std::string& rest) {
    return key_error(keys, "rotatekv(clip=1,first=0,small=0,bits=" + rest + ")");
  };
  for (const float mean : {5.0F, 10.0F, 20.0F}) {
    const CacheShape keys = outlier_keys(200, 4, 128, mean);
    for (const std::string bits : {"2", "4"}) {
      const double raw = error(keys, bits + ",hadamard=false,reorder=false"),
                   spread = error(keys, bits + ",reorder=false"), sorted = error(keys, bits);
      CAPTURE(mean, bits, raw, spread, sorted);
      CHECK(raw > sorted);
      CHECK(spread > sorted);
      // At 2 bits and 20 times the spread of the others, outliers are most of a key, and codes that hold them
      // and little else lose less than a rotation without sorting.
      CHECK((raw > spread) == (bits == "4" || mean < 20));
      // Before their positions, outlier channels are the same for all tokens.
      CHECK(error(keys, bits + ",positions=after") > sorted);
    }
  }
}

TEST_CASE("where a group is the whole width, sorting changes nothing, bit for bit") {
  CacheShape keys = outlier_keys(60, 1, 64, 10);
  CHECK(key_error(keys, "rotatekv(group=64)") == key_error(keys, "rotatekv(group=64,reorder=false)"));
  CHECK(key_error(keys, "rotatekv(group=64)") == key_error(keys, "rotatekv"));  // no group is wider than that
}

TEST_CASE("numbers that are not finite, and flat vectors, have codes") {
  const float infinity = std::numeric_limits<float>::infinity();
  const RepresentedCache cache({.representation = "rotatekv(first=0,small=0)",
                                .prompt = 2,
                                .length = 2,
                                .keys = {std::nanf(""), 1, -infinity, 0, 0, 0, 0, 0},
                                .values = {infinity, -infinity, infinity, 0, 2, 2, 2, 2}});
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(std::isfinite(cache.key(0, c)));
    CHECK(std::isfinite(cache.value(0, c)));
    CHECK(cache.key(1, c) == 0);
  }
}

TEST_CASE("rotatekv refuses shapes that it has no rotation or groups for") {
  const auto refuses = [](CacheShape shape, const std::string& words) {
    shape.prompt = 1;
    CHECK_THROWS_WITH(RepresentedCache(shape), Catch::Contains(words));
  };
  refuses({.representation = "rotatekv", .dim = 24}, "no Walsh-Hadamard transform");
  refuses({.representation = "rotatekv", .n_lanes = 6}, "do not divide 6");
  refuses({.representation = "rotatekv(group=3)"}, "groups of 3 do not divide a vector of 4");
  refuses({.representation = "rotatekv(bits=12)"}, "1 to 8 bits");
}

}  // namespace kvsim::policy::test::test_representation_rotatekv
