// Tests rows that are not the run's own: external_rows, from a file, and compensation, for what is dropped.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_rows {

using Catch::Contains;

namespace {

/// Two lanes of three positions of two numbers, and of as many more as asked.
MemoryCalibration file_of(std::size_t positions) {
  MemoryCalibration::Heads out;
  for (const float lane : {0.0F, 1000.0F})
    for (const char* name : {"keys", "values"}) {
      std::vector<float>& rows = out[name].emplace_back();
      for (std::size_t i = 0; i < 2 * positions; ++i)
        rows.push_back(lane + static_cast<float>(i) + (name[0] == 'k' ? 0.0F : 0.5F));
    }
  return MemoryCalibration(std::move(out));
}

RepresentedCache with_rows(const MemoryCalibration& file, const std::string& text = "external_rows(file=x)") {
  return RepresentedCache({.representation = text,
                           .prompt = 3,
                           .n_lanes = 2,
                           .dim = 2,
                           .length = 6,
                           .every = 2,
                           .tables = &file});
}

}  // namespace

TEST_CASE("external_rows stores a file's rows, by position") {
  const MemoryCalibration prompt = file_of(3), run = file_of(4);
  RepresentedCache cache = with_rows(prompt);
  for (const std::size_t p : {0U, 2U})
    for (const std::size_t lane : {0U, 1U})
      for (const std::size_t c : {0U, 1U}) {
        CHECK(cache.key(p, c, lane) == static_cast<float>(1000 * lane + 2 * p + c));
        CHECK(cache.value(p, c, lane) == static_cast<float>(1000 * lane + 2 * p + c) + 0.5F);
      }
  CHECK(cache.ledger() == exact_ledger(cache.rows().shape(), 2));
  // A generated token stays as it comes, or is replaced as well.
  cache.append();
  CHECK(cache.key(3, 1, 1) == cache.recorded_key(3, 1, 1));
  CHECK(cache.ledger() == cache.closed_form());
  RepresentedCache whole = with_rows(run);
  whole.append({0});
  CHECK(whole.key(3, 1, 1) == 1007);
  CHECK(whole.value(3, 0, 0) == 6.5F);
  CHECK_THROWS_WITH(whole.append(), Contains("covers 4 positions"));
}

TEST_CASE("external_rows refuses files that do not suit the run") {
  const MemoryCalibration shorter = file_of(2), fits = file_of(3);
  CHECK_THROWS_WITH(with_rows(shorter), Contains("the prompt has 3") && Contains("x:/keys"));
  CHECK_THROWS_WITH(with_rows(fits, "external_rows(file=x,values=other)"), Contains("other"));
  MemoryCalibration::Heads uneven = fits.tables();
  for (std::vector<float>& lane : uneven["keys"]) lane.insert(lane.end(), {1, 2});
  const MemoryCalibration more_keys(uneven);
  CHECK_THROWS_WITH(with_rows(more_keys), Contains("another number of positions"));
}

TEST_CASE("compensation worked by hand") {
  // Of five tokens the second and the fourth are dropped.
  RepresentedCache cache({.representation = "compensation",
                          .prompt = 5,
                          .dim = 2,
                          .length = 8,
                          .every = 2,
                          .keys = {9, 9, 1, 2, 9, 9, 3, 6, 9, 9, 8, 1, 0, 0, 0, 0},
                          .values = {7, 7, 0, 4, 7, 7, 2, 0, 7, 7, 2, 2, 0, 0, 0, 0}});
  const auto row = [&] {
    const CacheRows& rows = cache.rows();
    return std::vector<float>{rows.rest_key(0)[0], rows.rest_key(0)[1], rows.rest_value(0)[0],
                              rows.rest_value(0)[1]};
  };
  CHECK(row() == std::vector<float>{2, 4, 1, 2});
  CHECK(cache.rows().rest_bias(0) == std::log(2.0F));
  // What is held stays as it comes; beside it a key, a value and a count.
  CHECK(cache.exact_keys() == 3);
  CHECK(cache.exact_values() == 3);
  CHECK(cache.ledger() == Ledger{.exact = 3 * 4 * 16, .codes = 4 * 16, .parameters = 32});
  CHECK(cache.ledger() == cache.closed_form());
  // Two that leave later join the means of four.
  cache.append({cache.rows().slot_of(0), cache.rows().slot_of(2)});
  CHECK(row() == std::vector<float>{(1 + 3 + 9 + 9) / 4.0F, (2 + 6 + 9 + 9) / 4.0F, (0 + 2 + 7 + 7) / 4.0F,
                                    (4 + 0 + 7 + 7) / 4.0F});
  CHECK(cache.rows().rest_bias(0) == std::log(4.0F));
  CHECK(cache.ledger() == Ledger{.exact = 2 * 4 * 16, .codes = 4 * 16, .parameters = 32});
}

TEST_CASE("compensation: where nothing is dropped there is no row") {
  RepresentedCache cache({.representation = "compensation", .prompt = 5, .n_lanes = 2, .length = 8});
  cache.append();
  for (const std::size_t lane : {0U, 1U}) CHECK_FALSE(cache.rows().has_rest(lane));
  CHECK(cache.ledger() == exact_ledger(cache.rows().shape(), 6));
  CHECK(cache.closed_form().bits() == cache.ledger().bits() + 2 * (8 * 16 + 32));
  cache.append({2});
  for (const std::size_t lane : {0U, 1U}) {
    REQUIRE(cache.rows().has_rest(lane));
    CHECK(cache.rows().rest_bias(lane) == 0);  // it stands for one
    CHECK(cache.rows().rest_key(lane)[1] == cache.recorded_key(2, 1, lane));
    CHECK(cache.rows().rest_value(lane)[0] == cache.recorded_value(2, 0, lane));
  }
}

}  // namespace kvsim::policy::test::test_representation_rows
