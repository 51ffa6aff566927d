// Tests the prompt's keys as a product of low rank: shadowkv_keys.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

#include "policies/builtin.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_shadowkv {

namespace {

using Numbers = std::vector<double>;
constexpr std::size_t kLanes = 2, kDim = 6, kTokens = 90;
const std::vector<float> kInvFreq{0.5F, 0.03F};

/// Turns the pairs (i, i + 2) of a key of one head.
void turn(double* key, std::size_t position, double direction) {
  for (std::size_t i = 0; i < kInvFreq.size(); ++i) {
    const double angle = direction * static_cast<double>(static_cast<float>(position) * kInvFreq[i]);
    const double x = key[i], y = key[i + 2];
    key[i] = x * std::cos(angle) - y * std::sin(angle);
    key[i + 2] = y * std::cos(angle) + x * std::sin(angle);
  }
}

/// Keys whose singular values before rotation fall by a factor of three each, down to `rank` of them;
/// rotated.
std::vector<float> falling_keys(std::size_t rank) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<Numbers> directions(rank, Numbers(kLanes * kDim));
  for (Numbers& direction : directions)
    for (double& x : direction) x = normal(random);
  std::vector<float> out;
  for (std::size_t p = 0; p < kTokens; ++p) {
    Numbers key(kLanes * kDim);
    for (std::size_t j = 0; j < rank; ++j) {
      const double along = normal(random) * 3 / std::pow(3, static_cast<double>(j));
      for (std::size_t c = 0; c < key.size(); ++c) key[c] += along * directions[j][c];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) turn(key.data() + lane * kDim, p, 1);
    for (const double x : key) out.push_back(static_cast<float>(x));
  }
  return out;
}

CacheShape shape_of(const std::string& codec, std::vector<float> keys, std::size_t prompt = 70) {
  return {.representation = codec,
          .prompt = prompt,
          .n_lanes = kLanes,
          .dim = kDim,
          .length = kTokens,
          .keys = std::move(keys),
          .values = std::vector<float>(kTokens * kLanes * kDim, 2),
          .inv_freq = kInvFreq};
}

Numbers recorded(const RepresentedCache& cache, std::size_t lane, std::size_t position) {
  Numbers out;
  for (std::size_t c = 0; c < kDim; ++c)
    out.push_back(static_cast<double>(cache.recorded_key(position, c, lane)));
  return out;
}

/// The chunks of a lane, of `chunks` of four tokens, whose least cosine to their mean is lowest.
std::set<std::size_t> slow_outliers(const RepresentedCache& cache, std::size_t lane, std::size_t chunks,
                                    std::size_t n) {
  std::vector<std::pair<double, std::size_t>> worst;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    Numbers mean(kDim);
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t c = 0; c < kDim; ++c) mean[c] += recorded(cache, lane, 4 * chunk + i)[c] / 4;
    double least = 1;
    for (std::size_t i = 0; i < 4; ++i) {
      const Numbers key = recorded(cache, lane, 4 * chunk + i);
      double product = 0, a = 0, b = 0;
      for (std::size_t c = 0; c < kDim; ++c) {
        product += key[c] * mean[c];
        a += key[c] * key[c];
        b += mean[c] * mean[c];
      }
      least = std::min(least, product / std::sqrt(a * b));
    }
    worst.emplace_back(least, chunk);
  }
  std::ranges::sort(worst);
  std::set<std::size_t> out;
  for (std::size_t i = 0; i < n; ++i) out.insert(worst[i].second);
  return out;
}

/// The prompt's keys of some lanes, projected on their first right singular vectors.
std::vector<Numbers> slow_product(const RepresentedCache& cache, std::size_t first, std::size_t lanes,
                                  std::size_t n, std::size_t rank) {
  const std::size_t width = lanes * kDim;
  std::vector<Numbers> keys;
  Numbers moments(width * width);
  for (std::size_t p = 0; p < n; ++p) {
    Numbers& key = keys.emplace_back();
    for (std::size_t lane = first; lane < first + lanes; ++lane) {
      Numbers one = recorded(cache, lane, p);
      turn(one.data(), p, -1);
      key.insert(key.end(), one.begin(), one.end());
    }
    for (std::size_t a = 0; a < width; ++a)
      for (std::size_t b = 0; b < width; ++b) moments[a * width + b] += key[a] * key[b];
  }
  const Numbers vectors = slow_eigenvectors(moments, width);
  for (std::size_t p = 0; p < n; ++p) {
    Numbers read(width);
    for (std::size_t j = 0; j < rank; ++j) {
      double along = 0;
      for (std::size_t c = 0; c < width; ++c) along += keys[p][c] * vectors[j * width + c];
      for (std::size_t c = 0; c < width; ++c) read[c] += along * vectors[j * width + c];
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) turn(read.data() + lane * kDim, p, 1);
    keys[p] = read;
  }
  return keys;
}

}  // namespace

TEST_CASE("shadowkv_keys projects keys before rotation and keeps the chunks that fit their mean least") {
  const std::vector<float> keys = falling_keys(12);
  for (const bool whole_layer : {true, false}) {
    CAPTURE(whole_layer);
    RepresentedCache cache(shape_of(std::string("shadowkv_keys(rank=3,chunk=4,outliers=5,local=2,heads=") +
                                        (whole_layer ? "layer)" : "head)"),
                                    keys));
    for (int i = 0; i < 10; ++i) cache.append();
    // 70 tokens: 17 chunks and two tokens behind; the last two chunks are local.
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::set<std::size_t> outliers = slow_outliers(cache, lane, 15, 5);
      const std::size_t first = whole_layer ? 0 : lane;
      const std::vector<Numbers> read = slow_product(cache, first, whole_layer ? kLanes : 1, 70, 3);
      for (std::size_t p = 0; p < 80; ++p)
        for (std::size_t c = 0; c < kDim; ++c) {
          CAPTURE(lane, p, c);
          if (p >= 60 || outliers.contains(p / 4))
            REQUIRE(cache.key(p, c, lane) == cache.recorded_key(p, c, lane));
          else  // three products of numbers below 40 and below 1 with 11 significant bits each
            REQUIRE(static_cast<double>(cache.key(p, c, lane)) ==
                    Approx(read[p][(lane - first) * kDim + c]).margin(0.06));
        }
    }
    CHECK(cache.exact_values() == 80);
    CHECK(cache.ledger() == cache.closed_form());
    const Ledger ledger = cache.ledger();
    CHECK(ledger.exact == 16 * 6 * (2 * 80 + 2 * (80 - 10 * 4)));
    CHECK(ledger.codes == 16 * 70 * 3 * (whole_layer ? 1 : 2));
    CHECK(ledger.tables == 16 * 12 * 3);
    CHECK(ledger.indices == 32 * 2 * 5);
    // A token of the prompt takes its row and, where it is exact, its keys with it; a generated one its keys.
    cache.append({0, 75});
    const Ledger after = cache.ledger();
    CHECK(after.codes == 16 * 69 * 3 * (whole_layer ? 1 : 2));
    CHECK(after.tables == ledger.tables);
  }
}

TEST_CASE("keys of a rank are stored exactly with as many columns, but for rounding") {
  const std::vector<float> keys = falling_keys(3);
  const auto largest_error = [&](const char* codec) {
    const RepresentedCache cache(shape_of(codec, keys));
    double worst = 0;
    for (std::size_t p = 0; p < 70; ++p)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        for (std::size_t c = 0; c < kDim; ++c)
          worst = std::max(
              worst, static_cast<double>(std::fabs(cache.key(p, c, lane) - cache.recorded_key(p, c, lane))));
    return worst;
  };
  CHECK(largest_error("shadowkv_keys(rank=3,chunk=4,outliers=0,local=0)") < 0.06);
  CHECK(largest_error("shadowkv_keys(rank=160,chunk=4,outliers=0,local=0)") < 0.06);
  CHECK(largest_error("shadowkv_keys(rank=2,chunk=4,outliers=0,local=0)") > 0.06);
  // More columns than the keys of one head have numbers change nothing.
  CHECK(largest_error("shadowkv_keys(rank=6,chunk=4,outliers=0,local=0,heads=head)") < 0.06);
}

TEST_CASE("short prompts, and those that are all outliers, keep their keys") {
  for (const std::size_t prompt : {0, 3, 40, 70}) {
    CAPTURE(prompt);
    RepresentedCache cache(shape_of("shadowkv_keys", falling_keys(12), prompt));
    cache.append();
    CHECK(cache.exact_keys() == prompt + 1);
    CHECK(cache.ledger() == cache.closed_form());
  }
  const RepresentedCache none(shape_of("shadowkv_keys(chunk=50)", falling_keys(12)));
  CHECK(none.ledger() == exact_ledger({kLanes, kDim, kDim, 16}, 70));
}

TEST_CASE("shadowkv_keys takes 15.6 % of the keys in factors") {
  // Of a long prompt: 160 columns where 1024 numbers were.
  const Part codec = *parse_composition("full+shadowkv_keys(outliers=0,local=0)", builtin()).representation;
  const std::uint64_t tokens = 1 << 20;
  const Ledger ledger = codec.ledger({8, 128, 128, 16}, tokens, 0);
  CHECK(static_cast<double>(ledger.codes) / static_cast<double>(tokens * 1024 * 16) == Approx(0.15625));
  CHECK(ledger.tables == 16 * 160 * 1024);
}

TEST_CASE("a key with a number that is none stays as it is, and the others do not see it") {
  std::vector<float> keys = falling_keys(3);
  const std::size_t bad = 5 * kLanes * kDim + 1;
  keys[bad] = std::nanf("");
  const RepresentedCache cache(shape_of("shadowkv_keys(rank=3,chunk=4,outliers=0,local=0)", keys));
  CHECK(std::isnan(cache.key(5, 1, 0)));
  CHECK(cache.key(5, 0, 0) == cache.recorded_key(5, 0, 0));
  for (std::size_t p = 0; p < 70; ++p)
    for (std::size_t c = 0; c < kDim; ++c) {
      CHECK(std::isfinite(cache.key(p, c, 1)));
      if (p != 5) CHECK(std::isfinite(cache.key(p, c, 0)));
    }
}

}  // namespace kvsim::policy::test::test_representation_shadowkv
