// Tests levels that other runs have taught, with outliers beside them: kvquant.
#include <catch2/catch.hpp>
#include <complex>
#include <set>

#include "policies/builtin.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_kvquant {
namespace {

using Numbers = std::vector<double>;

/// Turns pairs (i, i + pairs) as complex numbers.
Numbers turned(Numbers row, const std::vector<float>& inv_freq, std::size_t position, double direction) {
  const std::size_t pairs = inv_freq.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::complex<double> before(row[i], row[i + pairs]);
    const auto after =
        before * std::polar(1.0, direction * static_cast<double>(static_cast<float>(position) * inv_freq[i]));
    row[i] = after.real();
    row[i + pairs] = after.imag();
  }
  return row;
}

std::size_t slow_nearest(const Numbers& levels, double x) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < levels.size(); ++i)
    if (std::fabs(levels[i] - x) < std::fabs(levels[best] - x)) best = i;
  return best;
}

/// Lloyd's algorithm, number by number.
Numbers slow_means(Numbers numbers, std::size_t k) {
  std::ranges::sort(numbers);
  Numbers centres;
  for (std::size_t c = 0; c < k; ++c) centres.push_back(numbers[(2 * c + 1) * numbers.size() / (2 * k)]);
  for (int round = 0; round < 50; ++round) {
    Numbers sum(k), n(k);
    for (const double x : numbers) {
      const std::size_t c = slow_nearest(centres, x);
      sum[c] += x;
      n[c] += 1;
    }
    for (std::size_t c = 0; c < k; ++c)
      if (n[c] > 0) centres[c] = sum[c] / n[c];
  }
  for (double& centre : centres) centre = as_half(centre);
  return centres;
}

struct SlowRange {
  double offset = 0, span = 0;
  SlowRange() = default;
  SlowRange(double low, double high) : offset(as_half((low + high) / 2)), span(as_half((high - low) / 2)) {}
  bool holds(double x) const { return std::fabs(x - offset) <= span; }
  double normal(double x) const { return std::clamp((x - offset) / span, -1.0, 1.0); }
};

struct SlowVector {
  SlowRange range;
  std::set<std::size_t> outliers;
};

/// The n numbers at the ends of a vector, an odd one at the farther side, and the range of the others.
SlowVector slow_vector(const Numbers& vector, std::size_t n) {
  Numbers sorted = vector;
  std::ranges::sort(sorted);
  std::size_t low = n / 2, high = n / 2;
  const double median = sorted[sorted.size() / 2];
  if (n % 2 == 1) (median - sorted[low] > sorted[sorted.size() - 1 - high] - median ? low : high) += 1;
  SlowVector out{{sorted[low], sorted[sorted.size() - 1 - high]}, {}};
  for (std::size_t i = 0; i < vector.size(); ++i)
    if (vector[i] < sorted[low] || vector[i] > sorted[sorted.size() - 1 - high]) out.outliers.insert(i);
  return out;
}

struct Tables2 {
  std::vector<std::vector<SlowRange>> keys;  ///< per lane and channel
  Numbers key_levels, value_levels, key_reads, value_reads;
};

void stretch(const Numbers& numbers, const Numbers& levels, Numbers& reads) {
  Numbers coded;
  for (const double x : numbers) coded.push_back(levels[slow_nearest(levels, x)]);
  const auto moments = [](const Numbers& of) {
    double mean = 0, variance = 0;
    for (const double x : of) mean += x / static_cast<double>(of.size());
    for (const double x : of) variance += (x - mean) * (x - mean) / static_cast<double>(of.size());
    return std::pair(mean, std::sqrt(variance));
  };
  const auto [mean, deviation] = moments(numbers);
  const auto [coded_mean, coded_deviation] = moments(coded);
  for (const double level : levels)
    reads.push_back(as_half((level - coded_mean) * deviation / coded_deviation + mean));
}

/// What the calibration runs teach, from the definition.
Tables2 slow_tables(const MemoryCalibration& runs, const NoiseRuns& shape, std::size_t bits, double outliers,
                    bool whole_layer) {
  Tables2 out;
  Numbers keys, values;
  for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) {
    out.keys.emplace_back();
    for (std::size_t c = 0; c < shape.dim; ++c) {
      Numbers channel;
      for (std::size_t run = 0; run < shape.runs; ++run)
        for (std::size_t token = 1; token < shape.tokens; ++token) {
          Numbers key;
          for (std::size_t i = 0; i < shape.dim; ++i)
            key.push_back(static_cast<double>(runs.key(run, token, lane, i)));
          channel.push_back(turned(key, shape.inv_freq, token, -1)[c]);
        }
      Numbers sorted = channel;
      std::ranges::sort(sorted);
      const auto cut = static_cast<std::size_t>(outliers / 2 * static_cast<double>(sorted.size()));
      const SlowRange range(sorted[cut], sorted[sorted.size() - 1 - cut]);
      out.keys.back().push_back(range);
      for (const double x : channel)
        if (range.holds(x)) keys.push_back(range.normal(x));
    }
  }
  for (std::size_t run = 0; run < shape.runs; ++run)
    for (std::size_t token = 1; token < shape.tokens; ++token) {
      Numbers vector;
      for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) {
        for (std::size_t c = 0; c < shape.dim; ++c)
          vector.push_back(static_cast<double>(runs.value(run, token, lane, c)));
        if (whole_layer && lane + 1 < shape.n_lanes) continue;
        const SlowVector of = slow_vector(
            vector, static_cast<std::size_t>(std::lround(outliers * static_cast<double>(vector.size()))));
        for (std::size_t i = 0; i < vector.size(); ++i)
          if (!of.outliers.contains(i)) values.push_back(of.range.normal(vector[i]));
        vector.clear();
      }
    }
  out.key_levels = slow_means(keys, std::size_t{1} << bits);
  out.value_levels = slow_means(values, std::size_t{1} << bits);
  stretch(keys, out.key_levels, out.key_reads);
  stretch(values, out.value_levels, out.value_reads);
  return out;
}

double slow_coded(const SlowRange& range, const Numbers& levels, const Numbers& reads, double x) {
  return reads[slow_nearest(levels, range.normal(x))] * range.span + range.offset;
}

/// Tables by hand: keys from -1 to 2, two levels.
MemoryCalibration by_hand() {
  return MemoryCalibration({{"key_ranges", {{0.5F, 1.5F, 0.5F, 1.5F, 0.5F, 1.5F, 0.5F, 1.5F}}},
                            {"key_levels", {{-0.5F, 0.5F}}},
                            {"value_levels", {{-0.5F, 0.5F}}},
                            {"key_levels_qnorm", {{-0.75F, 0.75F}}},
                            {"value_levels_qnorm", {{-0.75F, 0.75F}}}});
}

}  // namespace

TEST_CASE("levels are the centres of clusters") {
  CHECK(level_means({-1, -1, -0.5F, 0.5F, 1, 1}, 2, 50) ==
        std::vector{static_cast<float>(as_half(-2.5 / 3)), static_cast<float>(as_half(2.5 / 3))});
  // More levels than numbers: some are the same.
  CHECK(level_means({0.25F}, 4, 50) == std::vector<float>(4, 0.25F));
  // Of two equally near levels the lower; beyond the ends the end; no number is the first.
  const std::vector<float> levels{-1, 0, 2};
  CHECK(nearest_level(levels, 1) == 1);
  CHECK(nearest_level(levels, 1.5F) == 2);
  CHECK(nearest_level(levels, -9) == 0);
  CHECK(nearest_level(levels, 9) == 2);
  CHECK(nearest_level(levels, std::nanf("")) == 0);
}

TEST_CASE("kvquant of a token, by hand") {
  const MemoryCalibration tables = by_hand();
  // Keys: 1 is at 1/3 of the range and becomes 0.5 of it, -0.2 is at -0.47, 3 is beyond, 0.5 lies in the
  // middle, where the lower level wins. Values: 10 is farther from the median than 0, the others go from 0
  // to 2.
  const RepresentedCache cache({.representation = "kvquant(bits=1,outliers=0.25,sinks=1,file=x)",
                                .prompt = 2,
                                .length = 2,
                                .keys = {9, 9, 9, 9, 1, -0.2F, 3, 0.5F},
                                .values = {7, 7, 7, 7, 0, 1, 2, 10},
                                .tables = &tables});
  const std::vector<float> key{1.25F, -0.25F, 3, -0.25F}, value{0.5F, 0.5F, 1.5F, 10};
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(cache.key(0, c) == 9);
    CHECK(cache.value(0, c) == 7);
    CHECK(cache.key(1, c) == key[c]);
    CHECK(cache.value(1, c) == value[c]);
  }
  const Ledger ledger = cache.ledger();
  CHECK(ledger.exact == 8 * 16);
  CHECK(ledger.codes == 8);
  CHECK(ledger.parameters == 32);
  CHECK(ledger.outliers == 2 * 32);
  CHECK(ledger.indices == 2 * 32);
  CHECK(ledger.shared == 4 * 32 + 2 * 2 * 16);
  CHECK(ledger == cache.closed_form());

  // Without outliers the end of the range is nearest to 3, and values go from 0 to 10.
  const RepresentedCache dense({.representation = "kvquant(bits=1,outliers=0,sinks=0,qnorm=true,file=x)",
                                .prompt = 1,
                                .length = 1,
                                .keys = {1, -0.2F, 3, 0.5F},
                                .values = {0, 1, 2, 10},
                                .tables = &tables});
  CHECK(dense.key(0, 2) == 0.5F + 0.75F * 1.5F);
  CHECK(dense.key(0, 1) == 0.5F - 0.75F * 1.5F);
  CHECK(dense.value(0, 0) == 5 - 0.75F * 5);
  CHECK(dense.value(0, 3) == 5 + 0.75F * 5);
  CHECK(dense.ledger() == dense.closed_form());
  CHECK(dense.ledger().indices == 0);
}

TEST_CASE("kvquant does what its definition says, keys before rotation and ranges of other runs") {
  for (const auto& [codec, bits, outliers, whole_layer, norm] :
       {std::tuple{"kvquant(bits=2,outliers=0.1)", 2, 0.1, true, false},
        std::tuple{"kvquant(bits=3,outliers=0.2,values=head,qnorm=true)", 3, 0.2, false, true},
        std::tuple{"kvquant(bits=4,outliers=0.05,qnorm=true)", 4, 0.05, true, true}}) {
    CAPTURE(codec);
    const NoiseRuns runs{.n_lanes = 3, .dim = 6, .inv_freq = {0.5F, 0.03F}};
    const MemoryCalibration tables(codec, runs);
    Tables2 slow = slow_tables(tables, runs, static_cast<std::size_t>(bits), outliers, whole_layer);
    if (!norm) {
      slow.key_reads = slow.key_levels;
      slow.value_reads = slow.value_levels;
    }
    RepresentedCache cache({.representation = with_file(codec),
                            .prompt = 30,
                            .n_lanes = 3,
                            .dim = 6,
                            .length = 60,
                            .scale = 3,
                            .tables = &tables,
                            .inv_freq = runs.inv_freq});
    for (std::size_t i = 0; i < 12; ++i)
      cache.append(i % 3 == 1 ? std::vector{i} : std::vector<std::size_t>{});
    std::uint64_t beside = 0;
    for (const Position position : cache.rows().positions()) {
      const auto p = static_cast<std::size_t>(position);
      Numbers values;
      for (std::size_t lane = 0; lane < 3; ++lane) {
        Numbers key;
        for (std::size_t c = 0; c < 6; ++c) {
          key.push_back(static_cast<double>(cache.recorded_key(p, c, lane)));
          values.push_back(static_cast<double>(cache.recorded_value(p, c, lane)));
        }
        if (p > 0) {
          key = turned(key, runs.inv_freq, p, -1);
          for (std::size_t c = 0; c < 6; ++c) {
            const SlowRange& range = slow.keys[lane][c];
            if (!range.holds(key[c])) ++beside;
            key[c] = range.holds(key[c]) ? slow_coded(range, slow.key_levels, slow.key_reads, key[c])
                                         : as_half(key[c]);
          }
          key = turned(key, runs.inv_freq, p, 1);
        }
        for (std::size_t c = 0; c < 6; ++c)
          REQUIRE(static_cast<double>(cache.key(p, c, lane)) == Approx(key[c]).margin(1e-4));
      }
      const std::size_t n = whole_layer ? 18 : 6;
      for (std::size_t first = 0; first < 18; first += n) {
        const Numbers vector(values.begin() + static_cast<std::ptrdiff_t>(first),
                             values.begin() + static_cast<std::ptrdiff_t>(first + n));
        const SlowVector of =
            slow_vector(vector, static_cast<std::size_t>(std::lround(outliers * static_cast<double>(n))));
        beside += p > 0 ? of.outliers.size() : 0;
        for (std::size_t i = 0; i < n; ++i) {
          const double want = p == 0 ? vector[i]
                              : of.outliers.contains(i)
                                  ? as_half(vector[i])
                                  : slow_coded(of.range, slow.value_levels, slow.value_reads, vector[i]);
          REQUIRE(static_cast<double>(cache.value(p, (first + i) % 6, (first + i) / 6)) ==
                  Approx(want).margin(1e-4));
        }
      }
    }
    CHECK(beside > 0);
    // Only how many keys lie beyond the ranges is not known beforehand.
    Ledger live = cache.ledger(), known = cache.closed_form();
    CHECK(live.outliers == 32 * beside);
    const std::uint64_t left = 4 * 12 / 3;  // one of three that joined replaced another
    CHECK(live.codes + left / 4 * 36 * static_cast<std::uint64_t>(bits) == known.codes);
  }
}

TEST_CASE("kvquant takes 4.33, 3.33 and 2.33 bits a number") {
  // Bits, 1 % outliers of 32 bits, a pointer of 32 bits per token for keys and for values, a scale and an
  // offset per token for values, at 32 heads of 128.
  for (const auto& [bits, ratio] : {std::pair{4, 3.69}, std::pair{3, 4.80}, std::pair{2, 6.86}}) {
    const Part kvquant =
        *parse_composition("full+kvquant(sinks=0,file=x,bits=" + std::to_string(bits) + ")", builtin())
             .representation;
    const std::uint64_t tokens = 1000, numbers = tokens * 2 * 4096;
    const double each = static_cast<double>(kvquant.ledger({32, 128, 128, 16}, tokens, 0).bits()) /
                        static_cast<double>(numbers);
    CHECK(each == Approx(bits + 0.33).margin(0.005));
    CHECK(16 / each == Approx(ratio).margin(0.01));
  }
  // The first token is exact.
  const Part one = *parse_composition("full+kvquant(file=x)", builtin()).representation;
  CHECK(one.ledger({32, 128, 128, 16}, 1, 0) ==
        Ledger{.exact = 2 * 4096 * 16, .shared = 32 * 128 * 32 + 2 * 16 * 8});
}

TEST_CASE("kvquant's parameters matter, and without one of few bits nothing changes") {
  const NoiseRuns runs{.n_lanes = 2, .dim = 16, .inv_freq = {0.5F, 0.03F}};
  const auto stored = [&](const std::string& codec) {
    const MemoryCalibration tables(codec, runs);
    return RepresentedCache({.representation = with_file(codec),
                             .prompt = 20,
                             .n_lanes = 2,
                             .dim = 16,
                             .length = 20,
                             .scale = 20,  // beyond the ranges
                             .tables = &tables,
                             .inv_freq = runs.inv_freq});
  };
  const auto numbers = [](const RepresentedCache& cache) {
    std::vector<float> out;
    for (std::size_t p = 0; p < 20; ++p)
      for (std::size_t c = 0; c < 16; ++c) out.insert(out.end(), {cache.key(p, c), cache.value(p, c)});
    return out;
  };
  const std::vector<float> defaults = numbers(stored("kvquant"));
  for (const char* changed : {"bits=2", "bits=4", "outliers=0.2", "outliers=0", "sinks=0", "sinks=5",
                              "values=head", "qnorm=true"}) {
    CAPTURE(changed);
    const bool same = numbers(stored("kvquant(" + std::string(changed) + ")")) == defaults;
    CHECK_FALSE(same);
  }
  const RepresentedCache exact({.representation = "kvquant(bits=16,file=x)",
                                .prompt = 20,
                                .n_lanes = 2,
                                .dim = 16,
                                .inv_freq = runs.inv_freq});
  CHECK(exact.exact_keys() == 20);
  CHECK(exact.exact_values() == 20);
  CHECK(exact.ledger() == exact.closed_form());
  CHECK(exact.ledger() == exact_ledger({2, 16, 16, 16}, 20));
}

TEST_CASE("kvquant of flat vectors, of channels that never moved, and of numbers that are none") {
  const float none = std::nanf(""), beyond = std::numeric_limits<float>::infinity();
  const MemoryCalibration flat({{"key_ranges", {{2, 0, 2, 0, 0.5F, 1.5F, 0.5F, 1.5F}}},
                                {"key_levels", {{-0.5F, 0.5F}}},
                                {"value_levels", {{-0.5F, 0.5F}}}});
  const RepresentedCache cache({.representation = "kvquant(bits=1,outliers=0.25,sinks=0,file=x)",
                                .prompt = 2,
                                .length = 2,
                                .keys = {2, 2.5F, none, beyond, 2, 2, 2, 2},
                                .values = {3, 3, 3, 3, none, 1, 1, -beyond},
                                .tables = &flat});
  CHECK(cache.key(0, 0) == 2);
  CHECK(cache.key(0, 1) == 2.5F);
  CHECK(std::isnan(cache.key(0, 2)));
  CHECK(cache.key(0, 3) == 65504);
  for (std::size_t c = 0; c < 4; ++c) CHECK(cache.value(0, c) == 3);
  CHECK(std::isnan(cache.value(1, 0)));
  CHECK(cache.value(1, 1) == 1);
  CHECK(cache.value(1, 3) == -65504);
  // Of the keys three lie beyond their ranges and of the values one each was to be, and then two.
  CHECK(cache.ledger().outliers == 32 * (3 + 1 + 2));

  const RepresentedCache dense({.representation = "kvquant(bits=1,outliers=0,sinks=0,file=x)",
                                .prompt = 1,
                                .length = 1,
                                .keys = {2, 2.5F, none, beyond},
                                .values = {none, 1, 1, 2},
                                .tables = &flat});
  CHECK(dense.key(0, 1) == 2);
  CHECK(dense.key(0, 2) == -0.25F);
  CHECK(dense.key(0, 3) == 1.25F);
  CHECK(dense.value(0, 0) == 1.25F);
  CHECK(dense.value(0, 3) == 1.75F);
}

TEST_CASE("kvquant refuses tables that are not its own, and calibrations of nothing") {
  MemoryCalibration::Heads tables = by_hand().tables();
  const auto refused = [&](const MemoryCalibration::Heads& heads, const char* codec) {
    const MemoryCalibration file(heads);
    CHECK_THROWS_AS(RepresentedCache({.representation = codec, .prompt = 1, .tables = &file}), Error);
  };
  refused(tables, "kvquant(bits=2,file=x)");
  tables["key_levels"] = {{0.5F, -0.5F}};
  refused(tables, "kvquant(bits=1,file=x)");
  tables.erase("key_levels");
  refused(tables, "kvquant(bits=1,file=x)");
  CHECK_THROWS_AS(MemoryCalibration("kvquant", NoiseRuns{.tokens = 1}), Error);
  CHECK_THROWS_AS(MemoryCalibration("kvquant(bits=16)", NoiseRuns{}), Error);
  CHECK_THROWS_AS(parse_composition("full+kvquant(file=x,bits=9)", builtin()), Error);
  // Values of a layer share a range, so its heads hold the same tokens.
  CHECK_THROWS_WITH(parse_composition("snapkv+kvquant(file=x)", builtin()), Catch::Contains("unit=layer"));
  CHECK_NOTHROW(parse_composition("snapkv(unit=layer)+kvquant(file=x)", builtin()));
  CHECK_NOTHROW(parse_composition("snapkv+kvquant(file=x,values=head)", builtin()));
}

}  // namespace kvsim::policy::test::test_representation_kvquant
