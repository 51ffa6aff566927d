// Tests principal components of other runs: matryoshka (per head), kv_heads (several), cskv (all of a layer).
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/slow_codes.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using namespace kvsim::policy::test;
using Catch::Contains;

namespace {

using Numbers = std::vector<double>;

/// Undoes the rotation of a vector of several heads, or does it (direction 1): pairs (i, i + pairs) of each
/// head.
Numbers turned(Numbers vector, std::size_t dim, const std::vector<float>& inv_freq, std::size_t position,
               double direction) {
  for (std::size_t head = 0; head < vector.size(); head += dim)
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      const double angle = direction * static_cast<double>(static_cast<float>(position) * inv_freq[i]);
      double &a = vector[head + i], &b = vector[head + i + inv_freq.size()];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = y * std::cos(angle) + x * std::sin(angle);
    }
  return vector;
}

struct SlowSpace {
  Numbers mean;
  std::vector<Numbers> components;  ///< all, largest first
};

/// Principal components of vectors, around their mean or 0.
SlowSpace slow_space(const std::vector<Numbers>& vectors, bool centred) {
  const std::size_t n = vectors[0].size();
  SlowSpace out{Numbers(n), {}};
  if (centred)
    for (const Numbers& vector : vectors)
      for (std::size_t c = 0; c < n; ++c) out.mean[c] += vector[c] / static_cast<double>(vectors.size());
  Numbers moments(n * n);
  for (const Numbers& vector : vectors)
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        moments[a * n + b] += (vector[a] - out.mean[a]) * (vector[b] - out.mean[b]);
  const Numbers all = slow_eigenvectors(moments, n);
  for (std::size_t j = 0; j < n; ++j)
    out.components.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(j * n),
                                all.begin() + static_cast<std::ptrdiff_t>((j + 1) * n));
  return out;
}

/// The projection, with every stored number rounded to 16 bits.
Numbers projected(const SlowSpace& space, std::size_t rank, const Numbers& vector) {
  Numbers out;
  for (const double x : space.mean) out.push_back(as_half(x));
  for (std::size_t j = 0; j < rank; ++j) {
    double coordinate = 0;
    for (std::size_t c = 0; c < vector.size(); ++c)
      coordinate += (vector[c] - as_half(space.mean[c])) * as_half(space.components[j][c]);
    for (std::size_t c = 0; c < vector.size(); ++c)
      out[c] += as_half(coordinate) * as_half(space.components[j][c]);
  }
  return out;
}

struct Method {
  std::string codec;
  std::size_t block, key_rank, value_rank;
  bool rotated, centred;
};

constexpr std::size_t kLanes = 4, kDim = 6;
const NoiseRuns kRuns{.tokens = 60, .n_lanes = kLanes, .dim = kDim, .inv_freq = {0.5F, 0.03F}};

/// The vectors of one block over the calibration's runs.
SlowSpace of_runs(const MemoryCalibration& runs, const Method& method, std::size_t block, bool keys) {
  std::vector<Numbers> vectors;
  for (std::size_t run = 0; run < kRuns.runs; ++run)
    for (std::size_t token = 0; token < kRuns.tokens; ++token) {
      Numbers vector;
      for (std::size_t lane = block * method.block; lane < (block + 1) * method.block; ++lane)
        for (std::size_t c = 0; c < kDim; ++c)
          vector.push_back(
              static_cast<double>(keys ? runs.key(run, token, lane, c) : runs.value(run, token, lane, c)));
      vectors.push_back(keys && !method.rotated ? turned(vector, kDim, kRuns.inv_freq, token, -1) : vector);
    }
  return slow_space(vectors, method.centred);
}

}  // namespace

TEST_CASE("matryoshka of a token, by hand") {
  const MemoryCalibration tables({{"key_components", {{0.5F, 0.5F, 0.5F, -0.5F}}},
                                  {"key_means", {{1, 0}}},
                                  {"value_components", {{1, 0, 0, 1}}},
                                  {"value_means", {{0, 8}}}});
  // (2, 3) is (1, 3) from the mean: its coordinate along (0.5, 0.5) is 2, which reads as (1, 1) from the
  // mean. Of values the first number is kept, and the second is the mean's.
  const RepresentedCache cache({.representation = "matryoshka(keys=0.5,values=0.5,file=x)",
                                .prompt = 1,
                                .dim = 2,
                                .length = 1,
                                .keys = {2, 3},
                                .values = {5, 7},
                                .tables = &tables});
  CHECK(cache.key(0, 0) == 2);
  CHECK(cache.key(0, 1) == 1);
  CHECK(cache.value(0, 0) == 5);
  CHECK(cache.value(0, 1) == 8);
  CHECK(cache.ledger() == Ledger{.codes = 2 * 16, .shared = 16 * (2 + 2 + 4)});
  CHECK(cache.ledger() == cache.closed_form());
}

TEST_CASE("vectors are projected on what those of other runs lie in") {
  for (const Method& method : {Method{"matryoshka(keys=0.5,values=0.7)", 1, 3, 4, true, true},
                               Method{"kv_heads", 2, 6, 6, true, false},
                               Method{"kv_heads(heads=4,rope=before)", 4, 6, 6, false, false},
                               Method{"cskv(keys=0.25,values=0.75,window=0)", 4, 6, 18, false, false}}) {
    CAPTURE(method.codec);
    const MemoryCalibration tables(method.codec, kRuns);
    RepresentedCache cache({.representation = with_file(method.codec),
                            .prompt = 20,
                            .n_lanes = kLanes,
                            .dim = kDim,
                            .length = 40,
                            .tables = &tables,
                            .inv_freq = kRuns.inv_freq});
    for (std::size_t i = 0; i < 10; ++i) cache.append();
    CHECK(cache.ledger() == cache.closed_form());
    CHECK(cache.ledger().codes == 30 * 16 * (kLanes / method.block) * (method.key_rank + method.value_rank));
    for (std::size_t block = 0; block < kLanes / method.block; ++block) {
      const SlowSpace keys = of_runs(tables, method, block, true),
                      values = of_runs(tables, method, block, false);
      for (std::size_t p = 0; p < 30; ++p) {
        Numbers key, value;
        for (std::size_t i = 0; i < method.block * kDim; ++i) {
          key.push_back(
              static_cast<double>(cache.recorded_key(p, i % kDim, block * method.block + i / kDim)));
          value.push_back(
              static_cast<double>(cache.recorded_value(p, i % kDim, block * method.block + i / kDim)));
        }
        if (!method.rotated) key = turned(key, kDim, kRuns.inv_freq, p, -1);
        key = projected(keys, method.key_rank, key);
        if (!method.rotated) key = turned(key, kDim, kRuns.inv_freq, p, 1);
        value = projected(values, method.value_rank, value);
        for (std::size_t i = 0; i < method.block * kDim; ++i) {
          const std::size_t lane = block * method.block + i / kDim;
          CAPTURE(block, p, i);
          // A coordinate near the middle of two 16-bit floats may become the other: below 32 they are 2^-6
          // apart.
          REQUIRE(static_cast<double>(cache.key(p, i % kDim, lane)) == Approx(key[i]).margin(0.016));
          REQUIRE(static_cast<double>(cache.value(p, i % kDim, lane)) == Approx(value[i]).margin(0.016));
        }
      }
    }
  }
}

TEST_CASE("all components leave rounding alone, and none leaves the mean") {
  for (const char* codec : {"matryoshka(keys=1,values=1)", "kv_heads(heads=1)",
                            "kv_heads(heads=1,rope=before)", "cskv(keys=1,values=1,window=0)"}) {
    CAPTURE(codec);
    const MemoryCalibration tables(codec, kRuns);
    const RepresentedCache cache({.representation = with_file(codec),
                                  .prompt = 20,
                                  .n_lanes = kLanes,
                                  .dim = kDim,
                                  .tables = &tables,
                                  .inv_freq = kRuns.inv_freq});
    // Components and coordinates have 11 significant bits: of 24 terms of at most 10 or so, 2^-11 of each.
    for (std::size_t p = 0; p < 20; ++p)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        for (std::size_t c = 0; c < kDim; ++c) {
          CHECK(cache.key(p, c, lane) == Approx(cache.recorded_key(p, c, lane)).margin(0.1));
          CHECK(cache.value(p, c, lane) == Approx(cache.recorded_value(p, c, lane)).margin(0.1));
        }
  }
  const MemoryCalibration tables("matryoshka", kRuns);
  const RepresentedCache none({.representation = "matryoshka(keys=0,values=0,file=x)",
                               .prompt = 9,
                               .n_lanes = kLanes,
                               .dim = kDim,
                               .tables = &tables});
  for (std::size_t p = 0; p < 9; ++p)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      for (std::size_t c = 0; c < kDim; ++c) {
        CHECK(none.key(p, c, lane) == tables.tables().at("key_means")[lane][c]);
        CHECK(none.value(p, c, lane) == tables.tables().at("value_means")[lane][c]);
      }
  CHECK(none.ledger().bits() == 0);
}

TEST_CASE("the components lose what the runs have beyond them, and no other directions lose less") {
  // Of a calibration's own vectors the mean squared error is the sum of the moments along the components that
  // are dropped; along the numbers themselves it is more.
  const Method method{"cskv(keys=0.25,values=0.5,window=0)", kLanes, 6, 12, false, false};
  NoiseRuns shape = kRuns;
  shape.inv_freq.clear();
  shape.runs = 1;
  const MemoryCalibration tables(method.codec, shape);
  std::vector<float> keys, values;
  std::vector<Numbers> vectors;
  for (std::size_t token = 0; token < shape.tokens; ++token) {
    vectors.emplace_back();
    for (std::size_t i = 0; i < kLanes * kDim; ++i) {
      keys.push_back(tables.key(0, token, i / kDim, i % kDim));
      values.push_back(tables.value(0, token, i / kDim, i % kDim));
      vectors.back().push_back(static_cast<double>(keys.back()));
    }
  }
  const RepresentedCache cache({.representation = with_file(method.codec),
                                .prompt = shape.tokens,
                                .n_lanes = kLanes,
                                .dim = kDim,
                                .length = shape.tokens,
                                .keys = keys,
                                .values = values,
                                .tables = &tables});
  double error = 0, beyond = 0;
  Numbers by_number(kLanes * kDim);
  for (std::size_t p = 0; p < shape.tokens; ++p)
    for (std::size_t i = 0; i < kLanes * kDim; ++i) {
      const double x = vectors[p][i];
      error += std::pow(static_cast<double>(cache.key(p, i % kDim, i / kDim)) - x, 2);
      by_number[i] += x * x;
    }
  const SlowSpace space = slow_space(vectors, false);
  for (std::size_t j = 6; j < space.components.size(); ++j)
    for (const Numbers& vector : vectors) {
      double along = 0;
      for (std::size_t c = 0; c < vector.size(); ++c) along += vector[c] * space.components[j][c];
      beyond += along * along;
    }
  CHECK(error == Approx(beyond).epsilon(0.005));
  std::ranges::sort(by_number, std::greater{});
  double dropped = 0;
  for (std::size_t i = 6; i < by_number.size(); ++i) dropped += by_number[i];
  CHECK(error < dropped);
}

TEST_CASE("cskv's window is exact beside its coordinates, which are read once it is full") {
  const MemoryCalibration tables("cskv", kRuns);
  RepresentedCache cache({.representation = "cskv(file=x,window=8)",
                          .prompt = 19,
                          .n_lanes = kLanes,
                          .dim = kDim,
                          .tables = &tables,
                          .inv_freq = kRuns.inv_freq});
  for (std::size_t n = 19; n < 41; ++n) {
    CAPTURE(n);
    CHECK(cache.exact_keys() == n % 8);
    CHECK(cache.exact_values() == n % 8);
    CHECK(cache.ledger() == cache.closed_form());
    // 2 D (dk + dv) bytes for all, 4 D for the window.
    CHECK(cache.ledger().bits() == 8 * (2 * 24 * n + 4 * 24 * (n % 8)));
    cache.append();
  }
  // One that leaves the window makes room for another; 41 tokens leave one in it.
  cache.append({40});
  CHECK(cache.exact_keys() == 1);
  cache.append({3});
  CHECK(cache.exact_keys() == 2);
}

TEST_CASE("what components take") {
  const StorageShape layer{32, 128, 128, 16};
  const auto ledger = [&](const char* codec) {
    return parse_composition("full+" + with_file(codec), builtin()).representation->ledger(layer, 1000, 0);
  };
  const double full = static_cast<double>(exact_ledger(layer, 1000).bits());
  CHECK(static_cast<double>(ledger("kv_heads").bits()) / full == 0.5);
  CHECK(static_cast<double>(ledger("kv_heads(heads=4)").bits()) / full == 0.25);
  CHECK(ledger("kv_heads(heads=4)").shared == 8ULL * 2 * (4 * 128) * 128 * (32 / 4) * 2);
  CHECK(static_cast<double>(ledger("matryoshka(keys=0.25,values=0.5)").bits()) / full == 0.375);
  // A cut of four fifths.
  CHECK(ledger("cskv(keys=0.2,values=0.2,window=0)").bits() == 1000ULL * 2 * 819 * 16);
}

TEST_CASE("parameters of components matter") {
  const auto stored = [&](const std::string& codec) {
    const MemoryCalibration tables(codec, kRuns);
    const RepresentedCache cache({.representation = with_file(codec),
                                  .prompt = 50,
                                  .n_lanes = kLanes,
                                  .dim = kDim,
                                  .tables = &tables,
                                  .inv_freq = kRuns.inv_freq});
    std::vector<float> out;
    for (std::size_t p = 0; p < 50; ++p)
      for (std::size_t c = 0; c < kDim; ++c) out.insert(out.end(), {cache.key(p, c), cache.value(p, c)});
    return out;
  };
  for (const auto& [name, changes] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"matryoshka", {"keys=0.7", "values=0.7"}},
           {"kv_heads", {"heads=4", "heads=1", "rope=before"}},
           {"cskv", {"keys=0.5", "values=0.5", "window=0", "window=64"}}})
    for (const std::string& change : changes) {
      CAPTURE(name, change);
      const bool same = stored(name) == stored(name + "(" + change + ")");
      CHECK_FALSE(same);
    }
}

TEST_CASE("components of heads that do not divide a layer, of other sizes, and of nothing are refused") {
  CHECK_THROWS_WITH(MemoryCalibration("kv_heads(heads=3)", kRuns), Contains("3 KV heads do not divide"));
  CHECK_THROWS_AS(MemoryCalibration("cskv", NoiseRuns{.runs = 0}), Error);
  const MemoryCalibration per_head("matryoshka", kRuns);
  CHECK_THROWS_WITH(RepresentedCache({.representation = "cskv(file=x)",
                                      .prompt = 1,
                                      .n_lanes = kLanes,
                                      .dim = kDim,
                                      .tables = &per_head}),
                    Contains("has 36 numbers per KV head"));
  for (const char* codec : {"cskv", "kv_heads"}) {
    CHECK_THROWS_WITH(parse_composition(std::string("snapkv+") + codec + "(file=x)", builtin()),
                      Contains("stores all KV heads of a layer together"));
    CHECK(parse_composition(std::string("full+") + codec + "(file=x)", builtin()).layer_unit());
  }
  CHECK_FALSE(parse_composition("snapkv+matryoshka(file=x)", builtin()).layer_unit());
}

TEST_CASE("a token with a number that is none has no number in its block, and the others have theirs") {
  const MemoryCalibration tables("matryoshka", kRuns);
  std::vector<float> keys(2 * kLanes * kDim, 1), values = keys;
  keys[2] = std::nanf("");
  const RepresentedCache cache({.representation = "matryoshka(file=x)",
                                .prompt = 2,
                                .n_lanes = kLanes,
                                .dim = kDim,
                                .length = 2,
                                .keys = keys,
                                .values = values,
                                .tables = &tables});
  for (std::size_t c = 0; c < kDim; ++c) {
    CHECK(std::isnan(cache.key(0, c, 0)));
    CHECK(std::isfinite(cache.key(0, c, 1)));
    CHECK(std::isfinite(cache.key(1, c, 0)));
    CHECK(std::isfinite(cache.value(0, c, 0)));
  }
}
