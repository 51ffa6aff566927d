// The parts of scores: column sums, pooling, protection.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/highest.hpp"
#include "policies/parts/rows/pooling.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test_scores {

namespace {

/// Returns [n, n] causal rows whose sums in float are never exact.
std::vector<float> odd_rows(std::size_t n) {
  std::vector<float> rows(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) rows[i * n + j] = static_cast<float>(uniform01(combine({i, j})));
  return rows;
}

ColumnSums sums_of(const std::vector<float>& rows, std::size_t n, std::size_t last_rows, std::size_t block) {
  ColumnSums sums(1, last_rows);
  for (std::size_t first = 0; first < n; first += block) {
    const std::size_t count = std::min(block, n - first);
    sums.add({.query_head = 0,
              .first_query = first,
              .prompt_length = n,
              .p = {rows.data() + first * n, count, first + count, n}});
  }
  return sums;
}

}  // namespace

TEST_CASE("column sums are those of one row after another, for any block and any window") {
  constexpr std::size_t kLength = 37;
  const std::vector<float> rows = odd_rows(kLength);
  for (const std::size_t last_rows :
       {std::size_t{1}, std::size_t{5}, std::size_t{36}, std::size_t{90}, kAllRows}) {
    std::vector<double> expected(kLength);
    for (std::size_t i = kLength - std::min(last_rows, kLength); i < kLength; ++i)
      for (std::size_t j = 0; j <= i; ++j) expected[j] += static_cast<double>(rows[i * kLength + j]);
    for (const std::size_t block : {1U, 3U, 8U, 16U, 20U, 64U}) {
      const ColumnSums sums = sums_of(rows, kLength, last_rows, block);
      const std::vector<double> actual(sums.head(0).begin(), sums.head(0).end());
      CHECK(actual == expected);  // the same bits
    }
  }
}

TEST_CASE("sums with another fold have the same bits for any block") {
  constexpr std::size_t kLength = 23;
  const std::vector<float> rows = odd_rows(kLength);
  for (const std::size_t last_rows : {std::size_t{1}, std::size_t{6}, kAllRows}) {
    std::vector<double> expected(kLength);
    for (std::size_t i = kLength - std::min(last_rows, kLength); i < kLength; ++i)
      for (std::size_t j = 0; j < kLength; ++j)
        expected[j] = expected[j] * 0.9 + static_cast<double>(i) * static_cast<double>(rows[i * kLength + j]);
    for (const std::size_t block : {1U, 4U, 50U}) {
      ColumnSums sums(1, last_rows);
      for (std::size_t first = 0; first < kLength; first += block) {
        const std::size_t count = std::min(block, kLength - first);
        sums.fold({.query_head = 0,
                   .first_query = first,
                   .prompt_length = kLength,
                   .p = {rows.data() + first * kLength, count, first + count, kLength}},
                  [](double sum, double p, std::size_t i) { return sum * 0.9 + static_cast<double>(i) * p; });
      }
      CHECK(std::vector<double>(sums.head(0).begin(), sums.head(0).end()) == expected);
    }
  }
}

TEST_CASE("last rows are a number or a share, at least one of them") {
  CHECK(LastRows(5).in(20) == 5);
  CHECK(LastRows(50).in(20) == 20);
  CHECK(LastRows(kAllRows).in(20) == 20);
  CHECK(LastRows::of_share(0.25).in(21) == 5);
  CHECK(LastRows::of_share(0.01).in(20) == 1);
  CHECK(LastRows::of_share(1).in(20) == 20);
}

TEST_CASE("the highest values that are not taken, the newer of equals") {
  const std::vector<double> values = {3, 5, 5, 1, 5};
  const std::vector<char> taken = {0, 1, 0, 0, 0};
  const auto sorted = [](std::vector<std::size_t> picked) {
    std::sort(picked.begin(), picked.end());
    return picked;
  };
  CHECK(sorted(highest(values, taken, 1)) == std::vector<std::size_t>{4});
  CHECK(sorted(highest(values, taken, 3)) == std::vector<std::size_t>{0, 2, 4});
  CHECK(sorted(highest(values, taken, 9)) == std::vector<std::size_t>{0, 2, 3, 4});
  // By slot: position 30 in slot 2 is newer than position 7 in slot 4.
  const std::vector<Position> slots = {1, 2, 30, 4, 7};
  CHECK(highest(values, taken, 1, slots) == std::vector<std::size_t>{2});
}

TEST_CASE("the mean over heads of column sums") {
  const std::vector<float> a = {1, 0, 2, 3}, b = {3, 0, 4, 5};
  ColumnSums sums(2, kAllRows);
  sums.add({.query_head = 1, .first_query = 0, .prompt_length = 2, .p = {b.data(), 2, 2, 2}});
  sums.add({.query_head = 0, .first_query = 0, .prompt_length = 2, .p = {a.data(), 2, 2, 2}});
  CHECK(sums.mean() == std::vector<double>{5, 4});
}

TEST_CASE("pooling pads as PyTorch's defaults do, worked by hand") {
  const std::vector<double> x = {6, 0, 3, 9};
  CHECK(pooled(Pooling::parse("none"), x) == x);
  CHECK(pooled(Pooling::parse("avg:3"), x) == std::vector<double>{2, 3, 4, 4});
  CHECK(pooled(Pooling::parse("max:3"), x) == std::vector<double>{6, 6, 9, 9});
  CHECK(pooled(Pooling::parse("avg:3:nopad"), x) == std::vector<double>{3, 3, 4, 6});
  CHECK(pooled(Pooling::parse("avg:9:nopad"), x) == std::vector<double>{4.5, 4.5, 4.5, 4.5});
  // The kernel is wider than the row.
  CHECK(pooled(Pooling::parse("avg:9"), x) == std::vector<double>{2, 2, 2, 2});
  CHECK(pooled(Pooling::parse("max:9"), x) == std::vector<double>{9, 9, 9, 9});
  CHECK(pooled(Pooling::parse("max:3"), std::vector<double>{-2, -1}) == std::vector<double>{-1, -1});
  CHECK(pooled(Pooling::parse("avg:5"), std::vector<double>{}).empty());
}

TEST_CASE("a feeder that ignores the floor is caught") {
  const test::Run run = test::random_run({.prompt = 12, .decode = 2, .n_lanes = 1, .group = 1}, 1);
  CHECK_THROWS_WITH(test::feed("snapkv(window=8)", run, 7), Catch::Contains("below the policy's floor"));
  CHECK_THROWS_WITH(test::feed("tova(sinks=4)", run, 4), Catch::Contains("every slot is protected"));
}

TEST_CASE("the floor leaves room for the token being computed") {
  CHECK(KeepRule{.protection = {4, 8}}.floor() == 12);
  CHECK(KeepRule{.protection = {4, 0}}.floor() == 5);
  CHECK(KeepRule{}.floor() == 1);
  // In blocks of 8: one for the sinks; the window may begin with the last position of its first.
  CHECK(KeepRule{.protection = {4, 8}, .granularity = 8}.floor() == 8 + 8 + 7);
}

}  // namespace kvsim::policy::test_scores
