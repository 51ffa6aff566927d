// Tests codes with outliers and factors of low rank: gear.
#include <catch2/catch.hpp>
#include <numbers>
#include <numeric>

#include "policies/builtin.hpp"
#include "policies/parts/codes/low_rank.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_gear {

namespace {

/// A coding vector: outliers as they came, everything else coded in groups with the mean in their place.
std::vector<double> slow_vector(const std::vector<double>& vector, std::size_t group, std::size_t outliers,
                                int bits) {
  std::vector<std::size_t> order(vector.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return vector[i]; });
  const double mean = std::accumulate(vector.begin(), vector.end(), 0.0) / static_cast<double>(vector.size());
  std::vector<double> out = vector;
  std::vector<bool> outlier(vector.size());
  for (std::size_t i = 0; i < outliers; ++i) outlier[order[i]] = outlier[order[order.size() - 1 - i]] = true;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (outlier[i]) out[i] = mean;
  for (std::size_t first = 0; first < out.size(); first += group) {
    const auto begin = out.begin() + static_cast<std::ptrdiff_t>(first);
    std::ranges::copy(slowly_coded({begin, begin + static_cast<std::ptrdiff_t>(group)}, bits), begin);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (outlier[i]) out[i] = vector[i];
  return out;
}

/// The error of keys and of values over what is held, as sums of squares.
std::pair<double, double> errors(const std::string& text, std::size_t appended = 0) {
  RepresentedCache cache({.representation = text, .prompt = 64, .dim = 16});
  for (std::size_t i = 0; i < appended; ++i) cache.append();
  double keys = 0, values = 0;
  for (std::size_t p = 0; p < 64 + appended; ++p)
    for (std::size_t c = 0; c < 16; ++c) {
      keys += std::pow(static_cast<double>(cache.key(p, c) - cache.recorded_key(p, c)), 2);
      values += std::pow(static_cast<double>(cache.value(p, c) - cache.recorded_value(p, c)), 2);
    }
  return {keys, values};
}

}  // namespace

TEST_CASE("gear without factors equals a slow version of its codes and outliers") {
  struct Codes {
    std::string text;
    int bits;
    std::size_t group;  // 0: all
    double share;
  };
  for (const Codes& codes :
       {Codes{"bits=2,group=8,outliers=0.25", 2, 8, 0.25}, Codes{"bits=4,base=kcvt,outliers=0.5", 4, 0, 0.5},
        Codes{"bits=3,group=4,outliers=0", 3, 4, 0}}) {
    constexpr std::size_t kBlock = 16, kDim = 8, kPrompt = 37;
    RepresentedCache cache({.representation = "gear(rank=0,buffer_rank=0,buffer=16," + codes.text + ")",
                            .prompt = kPrompt,
                            .n_lanes = 2,
                            .dim = kDim,
                            .length = 80});
    for (std::size_t n = kPrompt; n < 72; ++n) {
      // The prompt's block has 32 tokens, the others 16.
      for (std::size_t lane = 0; lane < 2; ++lane)
        for (std::size_t first = 0; first < n;) {
          const std::size_t size = first == 0 ? 32 : kBlock;
          if (first + size > n) {
            for (std::size_t p = first; p < n; ++p)
              REQUIRE(cache.key(p, 0, lane) == cache.recorded_key(p, 0, lane));
            break;
          }
          for (std::size_t c = 0; c < kDim; ++c) {
            std::vector<double> channel;
            for (std::size_t p = first; p < first + size; ++p)
              channel.push_back(static_cast<double>(cache.recorded_key(p, c, lane)));
            channel = slow_vector(channel, codes.group == 0 ? size : codes.group,
                                  static_cast<std::size_t>(codes.share * static_cast<double>(size) / 2),
                                  codes.bits);
            for (std::size_t p = first; p < first + size; ++p) {
              CAPTURE(codes.text, n, lane, p, c);
              REQUIRE(static_cast<double>(cache.key(p, c, lane)) == Approx(channel[p - first]).margin(1e-4));
            }
          }
          for (std::size_t p = first; p < first + size; ++p) {
            std::vector<double> value;
            for (std::size_t c = 0; c < kDim; ++c)
              value.push_back(static_cast<double>(cache.recorded_value(p, c, lane)));
            value = slow_vector(value, codes.group == 0 ? kDim : codes.group,
                                static_cast<std::size_t>(codes.share * kDim / 2), codes.bits);
            for (std::size_t c = 0; c < kDim; ++c)
              REQUIRE(static_cast<double>(cache.value(p, c, lane)) == Approx(value[c]).margin(1e-4));
          }
          first += size;
        }
      CHECK(cache.ledger() == cache.closed_form());
      cache.append();
    }
  }
}

TEST_CASE("factors of low rank are the best ones, where the power iteration has had time") {
  // Diagonal numbers 8, 4, 2, 1 under rotations of both sides: rank r leaves the rest of them.
  DenseMatrix error(6, 4);
  const double diagonal[] = {8, 4, 2, 1};
  DenseMatrix left(6, 4);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 0; j < 4; ++j)  // columns of the cosine transform are orthonormal
      left.row(i)[j] = static_cast<float>(
          std::sqrt((j == 0 ? 1.0 : 2.0) / 6) *
          std::cos(std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(j) / 6));
  const float right[4][4] = {
      {.5F, .5F, .5F, .5F}, {.5F, -.5F, .5F, -.5F}, {.5F, .5F, -.5F, -.5F}, {.5F, -.5F, -.5F, .5F}};
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t c = 0; c < 4; ++c)
      for (std::size_t j = 0; j < 4; ++j)
        error.row(i)[c] += left.row(i)[j] * static_cast<float>(diagonal[j]) * right[j][c];
  const double rest[] = {85, 21, 5, 1, 0};  // sums of the squares that are left
  for (std::size_t rank = 0; rank <= 4; ++rank) {
    DenseMatrix out(6, 4);
    add_low_rank(error, rank, 40, 5, out);
    double left_over = 0;
    for (std::size_t i = 0; i < error.numbers.size(); ++i)
      left_over += std::pow(static_cast<double>(error.numbers[i] - out.numbers[i]), 2);
    CHECK(left_over == Approx(rest[rank]).margin(1e-3));
  }
}

TEST_CASE("factors never leave more of the error than there was") {
  for (std::uint64_t key = 0; key < 20; ++key) {
    DenseMatrix error(30, 8), one(30, 8), three(30, 8);
    double before = 0, after_one = 0, after_three = 0;
    for (std::size_t i = 0; i < error.numbers.size(); ++i) {
      error.numbers[i] = static_cast<float>(normal(combine({key, 77, i})));
      before += std::pow(static_cast<double>(error.numbers[i]), 2);
    }
    add_low_rank(error, 3, 1, key, one);
    add_low_rank(error, 3, 3, key, three);
    for (std::size_t i = 0; i < error.numbers.size(); ++i) {
      after_one += std::pow(static_cast<double>(error.numbers[i] - one.numbers[i]), 2);
      after_three += std::pow(static_cast<double>(error.numbers[i] - three.numbers[i]), 2);
    }
    CHECK(after_one < before);
    CHECK(after_three < after_one);
  }
  // Of nothing there is nothing to store.
  DenseMatrix zero(5, 4), out(5, 4);
  add_low_rank(zero, 2, 3, 1, out);
  CHECK(out.numbers == zero.numbers);
}

TEST_CASE("gear's factors shrink the error, more columns more, and as many as channels remove it") {
  const std::string rest = "group=16,buffer=16,";
  std::pair<double, double> before = errors("gear(" + rest + "rank=0,buffer_rank=0)", 16);
  for (const char* rank : {"1", "2", "4", "8"}) {
    const auto now = errors("gear(" + rest + "rank=" + rank + ",buffer_rank=" + rank + ")", 16);
    CHECK(now.first < before.first);
    CHECK(now.second < before.second);
    before = now;
  }
  const auto all = errors("gear(" + rest + "rank=16,buffer_rank=16,loops=8)", 16);
  CHECK(all.first < 1e-4);
  CHECK(all.second < 1e-4);
}

TEST_CASE("gear's bits per number") {
  // 2 bits and half a bit of scales; factors of 4 columns 0.5 bits and 64 / n; outliers 0.64 bits, where a
  // share of 2 % comes to whole numbers: 1,600 tokens, and 200 channels.
  const auto bits = [](const std::string& text, std::uint64_t tokens, std::size_t dim) {
    const Part gear = *parse_composition("full+gear(" + text + ")", builtin()).representation;
    return static_cast<double>(gear.ledger({4, dim, dim, 16}, tokens, 0).bits()) /
           static_cast<double>(4 * tokens * 2 * dim);
  };
  CHECK(bits("outliers=0,rank=0", 960, 128) == Approx(2.5));
  CHECK(bits("outliers=0", 960, 128) == Approx(2.5 + 0.5 + 64.0 / 960));
  CHECK(bits("group=40,buffer=40,rank=0", 1600, 200) == Approx(2 + 32.0 / 40 + 0.64));
  // A block of 64 generated tokens with factors of 2 columns: 0.75 bits more than its codes.
  const Part gear = *parse_composition("full+gear(outliers=0)", builtin()).representation;
  CHECK(static_cast<double>(gear.ledger({1, 128, 128, 16}, 0, 64).bits()) / (64 * 256) == Approx(2.5 + 0.75));
  // Channels and vectors whole.
  CHECK(bits("base=kcvt,bits=4,outliers=0,rank=0", 960, 128) == Approx(4 + (32.0 / 960 + 32.0 / 128) / 2));
}

TEST_CASE("what leaves takes its outliers and its row of the factors with it") {
  // Eight tokens of four channels, one block, groups of four tokens; one outlier on each side of a channel.
  RepresentedCache cache(
      {.representation = "gear(bits=4,group=4,buffer=8,outliers=0.25,rank=1)", .prompt = 8});
  const Ledger before = cache.ledger();
  CHECK(before.codes == 8 * 8 * 4);
  CHECK(before.parameters == 32 * (2 * 4 + 8));
  CHECK(before.outliers == 32 * 4 * 2);  // a value's share rounds down to none
  CHECK(before.tables == 16 * 2 * (8 + 4));
  std::uint64_t outliers = 0;
  for (std::size_t c = 0; c < 4; ++c) {
    std::size_t below = 0;
    for (std::size_t p = 0; p < 8; ++p) below += cache.recorded_key(p, c) < cache.recorded_key(0, c) ? 1 : 0;
    outliers += below == 0 || below == 7 ? 1 : 0;
  }
  cache.append({0});
  Ledger after = cache.ledger();
  CHECK(after.exact == 8 * 16);
  CHECK(after.codes == 7 * 8 * 4);
  CHECK(after.parameters == 32 * (2 * 4 + 7));
  CHECK(after.outliers == 32 * (4 * 2 - outliers));
  CHECK(after.tables == 16 * 2 * (7 + 4));
  for (const std::size_t slot : {1U, 2U, 3U}) cache.append({slot});
  CHECK(cache.ledger().parameters == 32 * (4 + 4));  // the first group is gone
  // With the rest of it the block is gone, and the new tokens are another.
  for (const std::size_t slot : {4U, 5U, 6U, 7U}) cache.append({slot});
  after = cache.ledger();
  CHECK(after == RepresentedCache(
                     {.representation = "gear(bits=4,group=4,buffer=8,outliers=0.25,rank=2)", .prompt = 8})
                     .ledger());
}

TEST_CASE("gear in 16 bits stores numbers as they come") {
  RepresentedCache cache({.representation = "gear(bits=16,group=4)", .prompt = 100, .length = 300});
  for (int i = 0; i < 100; ++i) cache.append();
  CHECK(cache.exact_keys() == 200);
  CHECK(cache.exact_values() == 200);
  CHECK(cache.ledger() == exact_ledger({1, 4, 4, 16}, 200));
}

TEST_CASE("gear's groups divide its buffer and a vector") {
  const auto refuse = [](const std::string& text, const std::string& words) {
    try {
      RepresentedCache cache({.representation = text, .prompt = 1});
      FAIL(text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK(std::string(error.what()).find(words) != std::string::npos);
    }
  };
  refuse("gear(group=4,buffer=6)", "multiple of the group");
  refuse("gear(group=32,buffer=64)", "do not divide a vector of 4");
}

}  // namespace kvsim::policy::test::test_representation_gear
