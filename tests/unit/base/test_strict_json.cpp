#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <charconv>

#include "sim/base/rng.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::test_strict_json {

TEST_CASE("numbers in json are the nearest doubles") {
  // Shortest texts of doubles of all sizes: each reads back as itself only if it is rounded correctly.
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double number =
        (uniform01(combine({i, 1})) - 0.5) * std::pow(10.0, 40 * uniform01(combine({i, 2})) - 20);
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, number);
    const std::string json = "[" + std::string(text, end.ptr) + ", 3]";
    CAPTURE(json);
    const boost::json::value read = parse_strict_json(json, "t", 10);
    REQUIRE(read.at(0).to_number<double>() == number);
    REQUIRE(read.at(1).to_number<int>() == 3);
  }
}

TEST_CASE("numbers that no double holds are refused") {
  CHECK_THROWS_WITH(parse_strict_json("[1e309]", "a.json", 10),
                    Catch::Contains("the number \"1e309\" is too large"));
  CHECK_THROWS_WITH(parse_strict_json("[-1e400]", "a.json", 10), Catch::Contains("is too large"));
  CHECK(parse_strict_json("[1e-400]", "a.json", 10).as_array()[0].as_double() == 0);
}

}  // namespace kvsim::test_strict_json
