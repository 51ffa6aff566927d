// Tests numbers of a turned vector at the levels of a normal one: turboquant, and llama.cpp's rotated blocks.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "policies/parts/codes/float_format.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_turboquant {

namespace {

using Numbers = std::vector<double>;

const std::vector<Numbers> kLevels = {{0.7979},
                                      {0.4528, 1.5104},
                                      {0.2451, 0.7560, 1.3439, 2.1519},
                                      {0.1284, 0.3880, 0.6568, 0.9423, 1.2562, 1.6180, 2.0690, 2.7326}};

double half(double x) {
  return static_cast<double>(nearest_half(static_cast<float>(x)));
}

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Numbers product(const std::vector<Numbers>& rows, const Numbers& x) {
  Numbers out;
  for (const Numbers& row : rows) out.push_back(dot(row, x));
  return out;
}

std::vector<Numbers> transposed(const std::vector<Numbers>& rows) {
  std::vector<Numbers> out(rows.size(), Numbers(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows.size(); ++j) out[j][i] = rows[i][j];
  return out;
}

std::vector<Numbers> normals(std::size_t dim, std::uint64_t seed, const char* use) {
  std::vector<Numbers> out(dim, Numbers(dim));
  for (std::size_t i = 0; i < dim * dim; ++i) out[i / dim][i % dim] = normal(combine({seed, key_of(use), i}));
  return out;
}

/// Each row without its part along the earlier ones, twice, at length 1.
std::vector<Numbers> orthogonal(std::vector<Numbers> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t j = 0; j < i; ++j) {
        const double along = dot(rows[i], rows[j]);
        for (std::size_t c = 0; c < rows.size(); ++c) rows[i][c] -= along * rows[j][c];
      }
    const double length = std::sqrt(dot(rows[i], rows[i]));
    for (double& x : rows[i]) x /= length;
  }
  return rows;
}

/// The matrix itself: 1 or -1 by the ones that row and column share in binary.
std::vector<Numbers> walsh(std::size_t dim) {
  std::vector<Numbers> out(dim, Numbers(dim));
  for (std::size_t i = 0; i < dim; ++i)
    for (std::size_t j = 0; j < dim; ++j)
      out[i][j] = (std::popcount(i & j) % 2 == 0 ? 1 : -1) / std::sqrt(static_cast<double>(dim));
  return out;
}

struct SlowRule {
  std::string form = "mse";
  std::size_t bits = 4;
  std::vector<Numbers> turn, signs{};
  bool unit_length = false;
};

Numbers slow_code(const SlowRule& rule, const Numbers& x) {
  const double norm = std::sqrt(dot(x, x)), root = std::sqrt(static_cast<double>(x.size()));
  Numbers unit = x;
  for (double& each : unit) each /= norm;
  const Numbers turned = product(rule.turn, unit);
  const std::size_t bits = rule.form == "mse" ? rule.bits : rule.bits - 1;
  Numbers coded, error;
  for (const double y : turned) {
    double best = 0, least = std::numeric_limits<double>::infinity();
    for (const double level : kLevels[bits - 1])
      for (const double signed_level : {-level / root, level / root})
        if (std::abs(signed_level - y) < least) {
          least = std::abs(signed_level - y);
          best = signed_level;
        }
    coded.push_back(best);
    error.push_back(y - best);
  }
  const double length = std::sqrt(dot(coded, coded)), left = std::sqrt(dot(error, error));
  if (rule.form == "sign")
    for (std::size_t i = 0; i < coded.size(); ++i) coded[i] += (error[i] > 0 ? 1 : -1) * half(left / root);
  if (rule.unit_length)
    for (double& each : coded) each /= length;
  Numbers out = product(transposed(rule.turn), coded);
  if (rule.form == "product") {
    Numbers rest = unit, signs;
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= out[i];
    for (const double each : product(rule.signs, rest)) signs.push_back(each > 0 ? 1 : -1);
    const Numbers sum = product(transposed(rule.signs), signs);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] += std::sqrt(std::numbers::pi / 2) / static_cast<double>(x.size()) * half(left) * sum[i];
  }
  for (double& each : out) each *= half(norm);
  return out;
}

Numbers recorded(const RepresentedCache& cache, std::size_t position, std::size_t dim, bool value = false) {
  Numbers out;
  for (std::size_t c = 0; c < dim; ++c)
    out.push_back(
        static_cast<double>(value ? cache.recorded_value(position, c) : cache.recorded_key(position, c)));
  return out;
}

Numbers stored(const RepresentedCache& cache, std::size_t position, std::size_t dim, bool value = false) {
  Numbers out;
  for (std::size_t c = 0; c < dim; ++c)
    out.push_back(static_cast<double>(value ? cache.value(position, c) : cache.key(position, c)));
  return out;
}

}  // namespace

TEST_CASE("turboquant by hand: (3, 1) in two bits") {
  // Its length is 3.1623 and its transform (.8944, .4472); the levels are .3202 and 1.0680, and the boundary
  // .6941.
  const auto coded = [](const std::string& text) {
    const RepresentedCache cache({.representation = "turboquant(rotation=hadamard,values=2," + text + ")",
                                  .prompt = 1,
                                  .dim = 2,
                                  .length = 1,
                                  .keys = {3, 1},
                                  .values = {3, 1}});
    CHECK(cache.value(0, 0) ==
          Approx(text.find("unit") == std::string::npos ? 3.1041 : 2.7840).epsilon(2e-4));
    return stored(cache, 0, 2);
  };
  CHECK(coded("bits=2")[0] == Approx(3.1041).epsilon(2e-4));
  CHECK(coded("bits=2")[1] == Approx(1.6723).epsilon(2e-4));
  CHECK(coded("bits=2,unit_length=true")[0] == Approx(2.7840).epsilon(2e-4));
  CHECK(coded("bits=2,unit_length=true")[1] == Approx(1.4998).epsilon(2e-4));
  // What is left is (-.1736, .1270), of root mean square .1521.
  CHECK(coded("bits=3,form=sign")[0] == Approx(3.1041).epsilon(5e-4));
  CHECK(coded("bits=3,form=sign")[1] == Approx(0.9920).epsilon(5e-4));
}

TEST_CASE("turboquant, slowly") {
  constexpr std::size_t kDim = 32;
  for (const std::uint64_t seed : {0, 5})
    for (const char* form : {"mse", "product", "sign"})
      for (const std::size_t bits : {2, 3, 4})
        for (const bool hadamard : {false, true}) {
          CAPTURE(seed, form, bits, hadamard);
          RepresentedCache cache(
              {.representation = "turboquant(bits=" + std::to_string(bits) + ",form=" + form +
                                 ",values=3,rotation=" + (hadamard ? "hadamard" : "random") + ")",
               .prompt = 12,
               .dim = kDim,
               .run_seed = seed});
          cache.append();  // a token's own query reads its code, too
          CHECK(cache.exact_keys() == 0);
          SlowRule rule{form, bits, hadamard ? walsh(kDim) : orthogonal(normals(kDim, seed, "turboquant")),
                        normals(kDim, seed, "turboquant.signs")};
          SlowRule values{"mse", 3, rule.turn};
          for (std::size_t position = 0; position < 13; ++position) {
            const Numbers key = slow_code(rule, recorded(cache, position, kDim)),
                          value = slow_code(values, recorded(cache, position, kDim, true));
            for (std::size_t c = 0; c < kDim; ++c) {
              CHECK(static_cast<double>(cache.key(position, c)) == Approx(key[c]).epsilon(1e-4).margin(2e-5));
              CHECK(static_cast<double>(cache.value(position, c)) ==
                    Approx(value[c]).epsilon(1e-4).margin(2e-5));
            }
          }
          CHECK(cache.ledger() == cache.closed_form());
          // Keys have a norm, and beside signs what is left.
          CHECK(cache.ledger().bits() ==
                13 * (kDim * (bits + 3) + 16 + (std::string(form) == "mse" ? 16 : 32)));
        }
}

TEST_CASE(
    "turboquant's levels are the means of a normal number between their boundaries, and its errors are published") {
  const auto density = [](double x) {
    return std::isinf(x) ? 0 : std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  };
  const auto below = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  for (const Numbers& levels : kLevels)
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const double from = i == 0 ? 0 : (levels[i - 1] + levels[i]) / 2,
                   to = i + 1 < levels.size() ? (levels[i] + levels[i + 1]) / 2
                                              : std::numeric_limits<double>::infinity();
      CHECK(levels[i] == Approx((density(from) - density(to)) / (below(to) - below(from))).margin(2e-4));
    }
  constexpr std::size_t kDim = 128, kTokens = 300;
  const double published[] = {0.363, 0.1175, 0.0345, 0.0095};
  for (std::size_t bits = 1; bits <= 4; ++bits) {
    const RepresentedCache cache(
        {.representation = "turboquant(bits=" + std::to_string(bits) + ")", .prompt = kTokens, .dim = kDim});
    double error = 0;
    for (std::size_t position = 0; position < kTokens; ++position) {
      const Numbers x = recorded(cache, position, kDim), y = stored(cache, position, kDim);
      double squares = 0;
      for (std::size_t c = 0; c < kDim; ++c) squares += (x[c] - y[c]) * (x[c] - y[c]);
      error += squares / dot(x, x) / kTokens;
    }
    CHECK(error == Approx(published[bits - 1]).epsilon(0.03));
  }
}

TEST_CASE("products with turboquant's signs are right in the mean, and without them too small") {
  constexpr std::size_t kDim = 16, kSeeds = 1500;
  const auto ratio = [](const std::string& text) {
    double sum = 0, squares = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const RepresentedCache cache(
          {.representation = text, .prompt = 1, .dim = kDim, .length = 1, .run_seed = seed});
      const Numbers x = recorded(cache, 0, kDim);
      const double of = dot(x, stored(cache, 0, kDim)) / dot(x, x);
      sum += of;
      squares += of * of;
    }
    const double mean = sum / kSeeds;
    return std::pair(mean, std::sqrt((squares / kSeeds - mean * mean) / kSeeds));
  };
  const auto [with, error] = ratio("turboquant(bits=2,form=product)");
  CHECK(std::abs(with - 1) < 4 * error);
  const auto [without, its_error] = ratio("turboquant(bits=1)");
  CHECK(without + 4 * its_error < 0.75);  // about 2 / pi
  CHECK(without == Approx(2 / std::numbers::pi).epsilon(0.08));
}

TEST_CASE("turboquant refuses what it has no code for, and holds what is not finite") {
  CHECK_THROWS_WITH(
      RepresentedCache({.representation = "turboquant(rotation=hadamard)", .prompt = 1, .dim = 24}),
      Catch::Contains("no Walsh-Hadamard transform"));
  CHECK_THROWS_WITH(
      RepresentedCache({.representation = "turboquant(bits=1,form=product)", .prompt = 1, .dim = 8}),
      Catch::Contains("one bit is the sign"));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInfinite = std::numeric_limits<float>::infinity();
  const RepresentedCache cache({.representation = "turboquant",
                                .prompt = 2,
                                .dim = 2,
                                .length = 2,
                                .keys = {kNan, kInfinite, 0, 0},
                                .values = {1, 2, 0, 0}});
  for (std::size_t c = 0; c < 2; ++c) {
    CHECK(std::isfinite(cache.key(0, c)));
    CHECK(cache.key(1, c) == 0);
  }
}

TEST_CASE("llama.cpp's cache rotated: blocks of the transform, and back") {
  for (const std::size_t dim : {64U, 96U, 128U, 192U}) {
    CAPTURE(dim);
    const RepresentedCache cache(
        {.representation = "llama_cpp(keys=q8_0,values=q4_0,rotate=true)", .prompt = 4, .dim = dim});
    const std::size_t of_keys = dim == 96 ? 1 : dim == 192 ? 64 : dim, of_values = dim == 96 ? 1 : 64;
    for (std::size_t position = 0; position < 4; ++position)
      for (const bool value : {false, true}) {
        const std::size_t size = value ? of_values : of_keys;
        const Numbers x = recorded(cache, position, dim, value);
        Numbers turned;
        for (std::size_t first = 0; first < dim; first += size)
          for (const double y :
               product(walsh(size), Numbers(x.begin() + static_cast<std::ptrdiff_t>(first),
                                            x.begin() + static_cast<std::ptrdiff_t>(first + size))))
            turned.push_back(y);
        for (std::size_t block = 0; block < dim; block += 32) {
          double furthest = 0;
          for (std::size_t c = block; c < block + 32; ++c)
            if (std::abs(turned[c]) > std::abs(furthest)) furthest = turned[c];
          const double scale = value ? furthest / -8 : std::abs(furthest) / 127;
          for (std::size_t c = block; c < block + 32; ++c)
            turned[c] = half(scale) * (value ? std::min(15.0, std::floor(turned[c] / scale + 8.5)) - 8
                                             : std::round(turned[c] / scale));
        }
        const Numbers y = stored(cache, position, dim, value);
        for (std::size_t first = 0; first < dim; first += size) {
          const Numbers back =
              product(walsh(size), Numbers(turned.begin() + static_cast<std::ptrdiff_t>(first),
                                           turned.begin() + static_cast<std::ptrdiff_t>(first + size)));
          for (std::size_t c = 0; c < size; ++c) CHECK(y[first + c] == Approx(back[c]).margin(1e-4));
        }
      }
    CHECK(cache.ledger() == cache.closed_form());
    CHECK(cache.ledger().bits() == 4 * dim * 13);  // rotation takes nothing
  }
}

TEST_CASE("llama.cpp's types of five bits and from the least number, from their definition") {
  for (const auto& [type, bits, from_least] :
       {std::tuple("q5_1", 5, true), {"q5_0", 5, false}, {"q4_1", 4, true}}) {
    CAPTURE(type);
    const RepresentedCache cache(
        {.representation = std::string("llama_cpp(keys=") + type + ",values=" + type + ")",
         .prompt = 6,
         .dim = 32});
    for (std::size_t position = 0; position < 6; ++position) {
      const Numbers x = recorded(cache, position, 32), y = stored(cache, position, 32);
      const double least = *std::min_element(x.begin(), x.end()),
                   largest = *std::max_element(x.begin(), x.end()), all = std::pow(2, bits),
                   furthest = -least > largest ? least : largest,
                   scale = from_least ? (largest - least) / (all - 1) : furthest / (-all / 2);
      for (std::size_t c = 0; c < 32; ++c) {
        const double code = from_least
                                ? std::floor((x[c] - least) / scale + 0.5)
                                : std::min(all - 1, std::floor(x[c] / scale + all / 2 + 0.5)) - all / 2;
        CHECK(y[c] == Approx(code * half(scale) + (from_least ? half(least) : 0)).margin(1e-5));
      }
    }
    CHECK(cache.ledger().bits() == 6 * 2 * (32 * static_cast<unsigned>(bits) + (from_least ? 32U : 16U)));
    CHECK(cache.ledger() == cache.closed_form());
  }
}

}  // namespace kvsim::policy::test::test_representation_turboquant
