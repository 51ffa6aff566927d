// Tests subspaces: principal components of other runs (matryoshka per head, kv_heads of several, cskv of all
// of a layer), and matrices from a file (external_maps).
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_subspaces {

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

namespace {

/// Codes of a group with a scale and the code of 0, from their definition.
Numbers slowly_coded_around_zero(const Numbers& group, int bits) {
  double least = 0, largest = 0;
  for (const double x : group) {
    least = std::min(least, x);
    largest = std::max(largest, x);
  }
  const double most = std::pow(2, bits) - 1, step = as_half((largest - least) / most);
  const double zero = step > 0 ? std::clamp(std::nearbyint(-least / step), 0.0, most) : 0;
  Numbers out;
  for (const double x : group)
    out.push_back(step > 0 ? (std::clamp(std::nearbyint(x / step) + zero, 0.0, most) - zero) * step : 0);
  return out;
}

/// A file's maps that are a calibration's components and their transposes.
MemoryCalibration maps_of(const MemoryCalibration& components, std::size_t key_rank, std::size_t value_rank,
                          bool means) {
  MemoryCalibration::Heads out;
  for (const auto& [of, rank] :
       {std::pair<std::string, std::size_t>{"key", key_rank}, {"value", value_rank}}) {
    for (const std::vector<float>& part : components.tables().at(of + "_components")) {
      out[of + "_down"].emplace_back(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(rank * kDim));
      std::vector<float>& up = out[of + "_up"].emplace_back();
      for (std::size_t c = 0; c < kDim; ++c)
        for (std::size_t j = 0; j < rank; ++j) up.push_back(part[j * kDim + c]);
    }
    if (means) out[of + "_means"] = components.tables().at(of + "_means");
  }
  return MemoryCalibration(std::move(out));
}

}  // namespace

TEST_CASE("cskv's codes of coordinates: keys over a window, values by KV head") {
  NoiseRuns runs = kRuns;
  runs.inv_freq.clear();
  const std::string codec = "cskv(keys=0.25,values=0.5,window=8,bits=4)";
  const MemoryCalibration tables(codec, runs);
  RepresentedCache cache({.representation = with_file(codec),
                          .prompt = 19,
                          .n_lanes = kLanes,
                          .dim = kDim,
                          .length = 60,
                          .tables = &tables});
  constexpr std::size_t kKeys = 6, kValues = 12, kWidth = kLanes * kDim;
  const auto component = [&](const char* name, std::size_t j, std::size_t i) {
    return static_cast<double>(tables.tables().at(name)[i / kDim][j * kDim + i % kDim]);
  };
  // A window's coordinates as they come, in 16 bits.
  const auto coordinates = [&](bool keys, std::size_t first, std::size_t rank) {
    std::vector<Numbers> out(8, Numbers(rank));
    for (std::size_t token = 0; token < 8; ++token)
      for (std::size_t j = 0; j < rank; ++j) {
        for (std::size_t i = 0; i < kWidth; ++i)
          out[token][j] +=
              static_cast<double>(keys ? cache.recorded_key(first + token, i % kDim, i / kDim)
                                       : cache.recorded_value(first + token, i % kDim, i / kDim)) *
              component(keys ? "key_components" : "value_components", j, i);
        out[token][j] = as_half(out[token][j]);
      }
    return out;
  };
  for (std::size_t n = 19; n < 35; ++n, cache.append()) {
    const std::size_t open = n % 8, coded = n - open;
    CAPTURE(n);
    CHECK(cache.exact_keys() == open);
    CHECK(cache.ledger() == cache.closed_form());
    // Keys have a group per window and coordinate, values one per token and KV head, of a 16-bit scale and a
    // code for 0.
    CHECK(cache.ledger() == Ledger{.exact = open * 2 * kWidth * 16,
                                   .codes = (kKeys + kValues) * (open * 16 + coded * 4),
                                   .parameters = (16 + 4) * (coded / 8 * kKeys + coded * kLanes),
                                   .shared = 16 * kWidth * (kKeys + kValues)});
  }
  for (std::size_t first = 0; first + 8 <= 32; first += 8) {
    std::vector<Numbers> keys = coordinates(true, first, kKeys), values = coordinates(false, first, kValues);
    for (std::size_t j = 0; j < kKeys; ++j) {
      Numbers group;
      for (const Numbers& token : keys) group.push_back(token[j]);
      group = slowly_coded_around_zero(group, 4);
      for (std::size_t token = 0; token < 8; ++token) keys[token][j] = group[token];
    }
    for (Numbers& token : values)
      for (std::size_t head = 0; head < kValues; head += kValues / kLanes) {
        const Numbers group = slowly_coded_around_zero({&token[head], &token[head] + kValues / kLanes}, 4);
        std::ranges::copy(group, &token[head]);
      }
    for (std::size_t token = 0; token < 8; ++token)
      for (std::size_t i = 0; i < kWidth; ++i) {
        double key = 0, value = 0;
        for (std::size_t j = 0; j < kKeys; ++j) key += keys[token][j] * component("key_components", j, i);
        for (std::size_t j = 0; j < kValues; ++j)
          value += values[token][j] * component("value_components", j, i);
        CAPTURE(first, token, i);
        REQUIRE(static_cast<double>(cache.key(first + token, i % kDim, i / kDim)) ==
                Approx(key).margin(1e-4));
        REQUIRE(static_cast<double>(cache.value(first + token, i % kDim, i / kDim)) ==
                Approx(value).margin(1e-4));
      }
  }
  // The scales of a window are held as long as one of its tokens is.
  const std::uint64_t before = cache.ledger().parameters;
  for (std::size_t token = 0; token < 7; ++token)
    cache.append({cache.rows().slot_of(static_cast<Position>(token))});
  const std::uint64_t of_token = (16 + 4) * kLanes, of_window = (16 + 4) * kKeys;
  // 35 tokens and 7 more are five full windows and two tokens; one window has a token left.
  CHECK(cache.ledger().parameters == before + of_window + 8 * of_token - 7 * of_token);
  cache.append({cache.rows().slot_of(7)});
  CHECK(cache.ledger().parameters == before + 8 * of_token - 8 * of_token);
}

TEST_CASE("fewer bits of coordinates lose more, and codes that have no groups are refused") {
  const MemoryCalibration tables("cskv", kRuns);
  const auto error = [&](const std::string& bits) {
    const RepresentedCache cache({.representation = "cskv(file=x,values=0.5,bits=" + bits + ")",
                                  .prompt = 64,
                                  .n_lanes = kLanes,
                                  .dim = kDim,
                                  .length = 64,
                                  .tables = &tables,
                                  .inv_freq = kRuns.inv_freq});
    double sum = 0;
    for (std::size_t p = 0; p < 64; ++p)
      for (std::size_t c = 0; c < kDim; ++c)
        sum += std::pow(static_cast<double>(cache.key(p, c) - cache.recorded_key(p, c)), 2);
    return sum;
  };
  CHECK(error("16") < error("4"));
  CHECK(error("4") < error("2"));
  const auto made = [&](const std::string& params) {
    return RepresentedCache({.representation = "cskv(file=x," + params + ")",
                             .prompt = 1,
                             .n_lanes = kLanes,
                             .dim = kDim,
                             .tables = &tables});
  };
  CHECK_THROWS_WITH(made("bits=4,window=0"), Contains("a window of tokens"));
  CHECK_THROWS_WITH(made("bits=4,values=0.3"), Contains("7 coordinates of values"));
  CHECK_THROWS_WITH(made("bits=12"), Contains("bits=12 is not a code"));
}

TEST_CASE("external_maps of a token, by hand") {
  // The coordinate of (2, 3) along (1, 1) is 5, which reads as 5 times (0.5, 0.25). Of values one number is
  // kept and doubled.
  MemoryCalibration::Heads heads{
      {"key_down", {{1, 1}}}, {"key_up", {{0.5F, 0.25F}}}, {"value_down", {{0, 1}}}, {"value_up", {{0, 2}}}};
  const CacheShape shape{.representation = "external_maps(file=x)",
                         .prompt = 1,
                         .dim = 2,
                         .length = 1,
                         .keys = {2, 3},
                         .values = {5, 7}};
  const auto with = [&](const MemoryCalibration& tables, const std::string& representation) {
    CacheShape out = shape;
    out.tables = &tables;
    out.representation = representation;
    return RepresentedCache(out);
  };
  const MemoryCalibration plain(heads);
  const RepresentedCache cache = with(plain, "external_maps(file=x)");
  CHECK(cache.key(0, 0) == 2.5F);
  CHECK(cache.key(0, 1) == 1.25F);
  CHECK(cache.value(0, 0) == 0);
  CHECK(cache.value(0, 1) == 14);
  CHECK(cache.ledger() == Ledger{.codes = 2 * 16, .shared = 16 * 2 * 4});
  CHECK(cache.ledger() == cache.closed_form());
  // From the mean (1, 0) the coordinate is 4.
  heads["key_means"] = {{1, 0}};
  heads["value_means"] = {{0, 3}};
  const MemoryCalibration around(heads);
  const RepresentedCache centred = with(around, "external_maps(file=x,means=file)");
  CHECK(centred.key(0, 0) == 3);
  CHECK(centred.key(0, 1) == 1);
  CHECK(centred.value(0, 1) == 2 * (7 - 3) + 3);
  CHECK(centred.ledger().shared == 16 * (2 * 4 + 4));
  CHECK_THROWS_WITH(with(plain, "external_maps(file=x,means=file)"), Contains("key_means"));
  CHECK_THROWS_WITH(with(plain, "external_maps(file=x,keys=1)"), Contains("another shape: key_down"));
  // Nothing is read of what stores nothing.
  const MemoryCalibration none({});
  CHECK(with(none, "external_maps(file=x,keys=0,values=0)").key(0, 0) == 0);
}

TEST_CASE("external_maps by a calibration's components is what stands in for trained ones, in every bit") {
  struct Twin {
    std::string codec, maps;
    std::size_t key_rank, value_rank;
    bool means;
  };
  for (const Twin& twin :
       {Twin{"matryoshka(keys=0.5,values=0.7)", "keys=0.5,values=0.7,means=file", 3, 4, true},
        Twin{"kv_heads", "heads=2", 6, 6, false},
        Twin{"kv_heads(heads=4,rope=before)", "heads=4,rope=before,keys=0.25,values=0.25", 6, 6, false},
        Twin{"cskv(window=8)", "heads=0,rope=before,keys=0.25,values=0.75,window=8", 6, 18, false},
        Twin{"cskv(window=8,values=0.5,bits=3)", "heads=0,rope=before,keys=0.25,values=0.5,window=8,bits=3",
             6, 12, false}}) {
    CAPTURE(twin.codec);
    const MemoryCalibration calibrated(twin.codec, kRuns),
        maps = maps_of(calibrated, twin.key_rank, twin.value_rank, twin.means);
    const auto cache = [&](const std::string& text, const MemoryCalibration& tables) {
      RepresentedCache out({.representation = text,
                            .prompt = 20,
                            .n_lanes = kLanes,
                            .dim = kDim,
                            .length = 40,
                            .tables = &tables,
                            .inv_freq = kRuns.inv_freq});
      for (std::size_t i = 0; i < 10; ++i) out.append();
      return out;
    };
    const RepresentedCache a = cache(with_file(twin.codec), calibrated),
                           b = cache("external_maps(file=x," + twin.maps + ")", maps);
    for (std::size_t p = 0; p < 30; ++p)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        for (std::size_t c = 0; c < kDim; ++c) {
          REQUIRE(a.key(p, c, lane) == b.key(p, c, lane));
          REQUIRE(a.value(p, c, lane) == b.value(p, c, lane));
        }
    CHECK(a.ledger().bits() == b.ledger().bits());
    CHECK(b.ledger() == b.closed_form());
  }
  CHECK(parse_composition("full+external_maps(file=x,heads=0)", builtin()).layer_unit());
  CHECK_FALSE(parse_composition("snapkv+external_maps(file=x)", builtin()).layer_unit());
}

}  // namespace kvsim::policy::test::test_representation_subspaces
