// The pieces scores are made of: column sums, pooling, protection.
#include <catch2/catch.hpp>

#include "policies/api/score_policy.hpp"
#include "policies/parts/column_sums.hpp"
#include "policies/parts/pooling.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

using namespace kvsim;
using namespace kvsim::policy;

namespace {

/// [n, n] causal rows that no sum of floats adds exactly.
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
  // A kernel wider than what it slides over.
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
  CHECK(Selection{.protection = {4, 8}}.floor() == 12);
  CHECK(Selection{.protection = {4, 0}}.floor() == 5);
  CHECK(Selection{}.floor() == 1);
  // In blocks of 8: one for the sinks; the window may begin with the last position of its first.
  CHECK(Selection{.protection = {4, 8}, .granularity = 8}.floor() == 8 + 8 + 7);
}
