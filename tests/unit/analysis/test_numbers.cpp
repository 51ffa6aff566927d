#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::analysis::test_numbers {

TEST_CASE("exact text is the shortest that reads back") {
  CHECK(exact_text(0.1) == "0.1");
  CHECK(exact_text(128) == "128");
  CHECK(exact_text(0) == "0");
  CHECK(exact_text(-2.5) == "-2.5");
  CHECK(exact_text(1.0 / 3.0) == "0.3333333333333333");
  CHECK(exact_text(5e-324) == "5e-324");
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const double value = std::ldexp(normal(key), static_cast<int>(mix(key) % 200) - 100);
    CHECK(std::strtod(exact_text(value).c_str(), nullptr) == value);
  }
}

TEST_CASE("rounded text never turns something into nothing") {
  CHECK(rounded_text(0) == "0");
  CHECK(rounded_text(-0.0) == "0");
  CHECK(rounded_text(1) == "1");
  CHECK(rounded_text(0.99999) == "1.0000");  // nearly one is not one
  CHECK(rounded_text(0.12345) == "0.1235");
  CHECK(rounded_text(2.5) == "2.5000");
  CHECK(rounded_text(76.52, 1) == "76.5");
  CHECK(rounded_text(0.04, 1) == "4.0e-02");
  CHECK(rounded_text(0.00005) == "0.0001");
  CHECK(rounded_text(0.0000321) == "3.2e-05");
  CHECK(rounded_text(-0.0000321) == "-3.2e-05");
  CHECK(rounded_text(4096) == "4096");
  CHECK(rounded_text(2.5e16) == "2.5e+16");
}

TEST_CASE("what is not finite is a bug") {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    CHECK_THROWS_AS(exact_text(value), Error);
    CHECK_THROWS_AS(rounded_text(value), Error);
  }
}

TEST_CASE("JSON strings escape what must be and survive any bytes") {
  CHECK(json_string("run.h5") == "\"run.h5\"");
  CHECK(json_string("a\"b\\c\n\t\x01") == "\"a\\\"b\\\\c\\n\\t\\u0001\"");
  CHECK(json_string("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  CHECK(json_string("\xff") == "\"\\ufffd\"");
  CHECK(json_string("\xe2\x82") == "\"\\ufffd\\ufffd\"");                        // cut short
  CHECK(json_string("\xc0\x80") == "\"\\ufffd\\ufffd\"");                        // overlong
  CHECK(json_string("\xed\xa0\x80") == "\"\\ufffd\\ufffd\\ufffd\"");             // surrogate
  CHECK(json_string("\xf4\x90\x80\x80") == "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");  // beyond U+10FFFF
}

TEST_CASE("bytes that belong to no character become U+FFFD, one each") {
  CHECK(well_formed("caf\xc3\xa9 \xe2\x82\xac") == "caf\xc3\xa9 \xe2\x82\xac");
  CHECK(well_formed("a\xc3") == "a\xef\xbf\xbd");
  CHECK(well_formed("\xe2\x82z") == "\xef\xbf\xbd\xef\xbf\xbdz");
  CHECK(well_formed("").empty());
}

}  // namespace kvsim::analysis::test_numbers
