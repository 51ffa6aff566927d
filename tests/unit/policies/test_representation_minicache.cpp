// Tests directions that two layers share: minicache.
#include <catch2/catch.hpp>
#include <map>
#include <numbers>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_minicache {

namespace {

using Vector = std::vector<double>;

struct SlowToken {
  Vector key, value;
};

struct SlowRule {
  double t = 0.6, gamma = 0.05;
  int bits = 16;
};

/// The codes of a direction: a scale and the least number in 16 bits each. Single precision, as it is stored.
void slowly_code(std::vector<float>& direction, int bits) {
  const auto [least, largest] = std::ranges::minmax(direction);
  const auto most = static_cast<float>((1 << bits) - 1);
  const auto half = [](float x) { return static_cast<float>(as_half(static_cast<double>(x))); };
  const float offset = half(least), step = half((largest - least) / most);
  for (float& x : direction) x = std::clamp(std::nearbyint((x - offset) / step), 0.0F, most) * step + offset;
}

double length(const Vector& a) {
  double squares = 0;
  for (const double x : a) squares += x * x;
  return std::sqrt(squares);
}

/// One lane of one layer, token by token, in double and without slots.
class SlowMini {
 public:
  SlowMini(const RepresentedCache& cache, const CacheShape& shape, const SlowRule& rule, std::size_t lane)
      : cache_(&cache), shape_(shape), rule_(rule), lane_(lane) {
    for (std::size_t p = 0; p < shape.prompt; ++p)
      for (const bool key : {true, false}) see(p, key);
    for (std::size_t p = 0; p < shape.prompt; ++p) store(p);
  }
  void append(std::size_t position) {
    for (const bool key : {true, false}) see(position, key);
    store(position);
  }
  const std::map<std::size_t, SlowToken>& tokens() const { return tokens_; }
  std::size_t apart() const { return apart_; }

 private:
  Vector row(std::size_t p, bool key, bool other) const {
    Vector out;
    for (std::size_t c = 0; c < shape_.dim; ++c)
      out.push_back(static_cast<double>(
          other ? (key ? cache_->other_key(p, c, lane_) : cache_->other_value(p, c, lane_))
          : key ? cache_->recorded_key(p, c, lane_)
                : cache_->recorded_value(p, c, lane_)));
    return out;
  }
  double angle(std::size_t p, bool key) const {
    const Vector a = row(p, key, false), b = row(p, key, true);
    double product = 0;
    for (std::size_t c = 0; c < a.size(); ++c) product += a[c] * b[c];
    return std::acos(product / length(a) / length(b));
  }
  void see(std::size_t p, bool key) { seen_[key].insert({angle(p, key), p}); }
  void store(std::size_t p) { tokens_[p] = {stored(p, true), stored(p, false)}; }
  Vector stored(std::size_t p, bool key) {
    const Vector own = row(p, key, false), other = row(p, key, true);
    const double least = seen_[key].begin()->first, largest = seen_[key].rbegin()->first;
    const double omega = angle(p, key);
    if (omega > largest - rule_.gamma * (largest - least)) {
      ++apart_;
      return own;
    }
    // Layer 3 is the earlier of its pair, 4 the later.
    const bool upper = shape_.pair_layer == 4;
    const double toward = upper ? rule_.t : 1 - rule_.t;
    Vector out;
    for (std::size_t c = 0; c < own.size(); ++c)
      out.push_back((std::sin(toward * omega) * own[c] / length(own) +
                     std::sin((1 - toward) * omega) * other[c] / length(other)) /
                    std::sin(omega));
    if (rule_.bits < 16) {
      std::vector<float> direction(out.begin(), out.end());
      slowly_code(direction, rule_.bits);
      out.assign(direction.begin(), direction.end());
    }
    for (double& x : out) x *= as_half(length(own));
    return out;
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  SlowRule rule_;
  std::size_t lane_, apart_ = 0;
  std::map<bool, std::multimap<double, std::size_t>> seen_;
  std::map<std::size_t, SlowToken> tokens_;
};

}  // namespace

TEST_CASE("minicache equals a slow version of its definition in both layers of a pair") {
  const std::vector<std::pair<std::string, SlowRule>> rules{
      {"minicache", {}},
      {"minicache(gamma=0)", {0.6, 0}},
      {"minicache(t=0.5,gamma=0.4)", {0.5, 0.4}},
      {"minicache(t=0,gamma=1)", {0, 1}},
      {"minicache(bits=4)", {0.6, 0.05, 4}},
      {"minicache(bits=2,gamma=0)", {0.6, 0, 2}},
  };
  for (const auto& [text, rule] : rules)
    for (const int layer : {3, 4}) {
      const CacheShape shape{
          .representation = text, .prompt = 31, .n_lanes = 2, .dim = 6, .length = 60, .pair_layer = layer};
      RepresentedCache cache(shape);
      std::vector<SlowMini> slow;
      for (std::size_t lane = 0; lane < 2; ++lane) slow.emplace_back(cache, shape, rule, lane);
      for (std::size_t p = shape.prompt; p < shape.length; ++p) {
        CAPTURE(text, layer, p);
        for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, slow[lane], lane);
        const std::size_t apart = slow[0].apart() + slow[1].apart();
        CHECK((apart > 0) == (rule.gamma > 0));
        CHECK(cache.ledger().outliers == apart * 6 * 16);
        CHECK(cache.ledger().indices == apart * 16);
        Ledger shared = cache.ledger();
        shared.outliers = shared.indices = 0;
        CHECK(shared == cache.closed_form());
        cache.append();
        for (SlowMini& lane : slow) lane.append(p);
      }
    }
}

TEST_CASE("minicache worked by hand: a right angle, and what no angle has") {
  // The earlier layer has (3, 0), the later one (0, 5). Six tenths of the way are 54 degrees.
  CacheShape shape{.representation = "minicache(gamma=0)", .prompt = 3, .dim = 2, .length = 3};
  shape.keys = {3, 0, 3, 4, 0, 0};
  shape.other_keys = {0, 5, 6, 8, 3, 4};
  shape.values = shape.keys;
  shape.other_values = shape.other_keys;
  const RepresentedCache earlier(shape);
  const double degree = std::numbers::pi / 180;
  CHECK(earlier.key(0, 0) == Approx(3 * std::cos(54 * degree)));
  CHECK(earlier.value(0, 1) == Approx(3 * std::sin(54 * degree)));
  // One direction, and no length.
  CHECK(earlier.key(1, 0) == Approx(3));
  CHECK(earlier.key(1, 1) == Approx(4));
  CHECK(earlier.key(2, 0) == 0);
  CHECK(earlier.key(2, 1) == 0);
  std::swap(shape.keys, shape.other_keys);
  std::swap(shape.values, shape.other_values);
  shape.pair_layer = 4;
  const RepresentedCache later(shape);
  CHECK(later.key(0, 0) == Approx(5 * std::cos(54 * degree)));
  CHECK(later.value(0, 1) == Approx(5 * std::sin(54 * degree)));
  CHECK(later.key(2, 0) == Approx(3));
  CHECK(later.key(2, 1) == Approx(4));
}

TEST_CASE("minicache pairs layers behind a share of them, and the others stay as they are") {
  const Part half = *parse_composition("full+minicache", builtin()).representation,
             earlier = *parse_composition("full+minicache(from=0.3)", builtin()).representation;
  const auto partners = [](const Part& part) {
    std::vector<int> out;
    for (int layer = 0; layer < 7; ++layer)
      out.push_back(part.make_representation({.layer = layer, .n_layers = 7})->partner().value_or(-1));
    return out;
  };
  CHECK(partners(half) == std::vector<int>{-1, -1, -1, 4, 3, 6, 5});
  CHECK(partners(earlier) == std::vector<int>{-1, -1, 3, 2, 5, 4, -1});
  RepresentedCache alone({.representation = "minicache", .prompt = 20, .length = 30, .pair_layer = 2});
  alone.append();
  CHECK(alone.exact_keys() == 21);
  CHECK(alone.exact_values() == 21);
  CHECK(alone.ledger() == exact_ledger(alone.rows().shape(), 21));
}

TEST_CASE("minicache's sizes: (d + 2) / d per pair, and of 32 layers") {
  // Without a token that stays apart, 128 numbers per vector.
  const Part part = *parse_composition("full+minicache(gamma=0)", builtin()).representation;
  const StorageShape shape{8, 128, 128, 16};
  const auto layer = static_cast<double>(exact_ledger(shape, 1000).bits()),
             shared = static_cast<double>(part.ledger(shape, 1000, 0).bits());
  CHECK(2 * shared / layer == Approx(130.0 / 128));
  const auto ratio = [&](double first) { return 32 * layer / (first * layer + (32 - first) * shared); };
  CHECK(ratio(16) == Approx(1.326).margin(5e-4));
  CHECK(ratio(10) == Approx(1.51).margin(5e-3));
  CHECK(ratio(8) == Approx(1.585).margin(5e-3));
}

TEST_CASE("minicache's codes: one of the direction for both layers, and of each vector of the others") {
  const StorageShape shape{8, 128, 128, 16, 20, 32};
  const auto of_token = [&](const char* text, std::uint32_t layer) {
    StorageShape at = shape;
    at.layer = layer;
    return parse_composition(std::string("full+") + text, builtin()).representation->ledger(at, 10, 0);
  };
  // Per vector of a pair half of 128 codes, half of 32 bits for their range, and a length of its own; of a
  // lone layer all of them, and no length.
  CHECK(of_token("minicache(bits=4)", 20) ==
        Ledger{.codes = 10 * 8 * 2 * 128 * 4 / 2, .parameters = 10 * 8 * 2 * (16 + 16)});
  CHECK(of_token("minicache(bits=4)", 3) ==
        Ledger{.codes = 10 * 8 * 2 * 128 * 4, .parameters = 10 * 8 * 2 * 32});
  CHECK(of_token("minicache(bits=16)", 20) == of_token("minicache", 20));
  // Of 32 layers, with pairs from the middle on: 4.92 times less than 16 bits.
  const Part part = *parse_composition("full+minicache(bits=4)", builtin()).representation;
  CHECK(32 * static_cast<double>(exact_ledger(shape, 1000).bits()) /
            static_cast<double>(part.ledger_of_layers(shape, 1000, 0).bits()) ==
        Approx(2048 / ((544 + 288) / 2.0)));
  // A layer without a partner is stored as in a plain code of whole vectors.
  RepresentedCache alone(
      {.representation = "minicache(bits=4)", .prompt = 20, .length = 30, .pair_layer = 2}),
      plain({.representation = "scalar(bits=4,group=0)", .prompt = 20, .length = 30});
  alone.append();
  plain.append();
  for (std::size_t p = 0; p < 21; ++p)
    for (std::size_t c = 0; c < 4; ++c) {
      CHECK(alone.key(p, c) == plain.key(p, c));
      CHECK(alone.value(p, c) == plain.value(p, c));
    }
  CHECK(alone.ledger() == plain.ledger());
}

}  // namespace kvsim::policy::test::test_representation_minicache
