#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/budget.hpp"
#include "tests/support/random_trace.hpp"

using namespace kvsim;

TEST_CASE("budgets are parsed as they are typed") {
  CHECK(sim::parse_budget("128").unit == sim::Budget::Unit::tokens);
  CHECK(sim::parse_budget(" 128 ").value == 128);
  CHECK(sim::parse_budget("25%").value == Approx(0.25));
  CHECK(sim::parse_budget("64KiB").value == 65536);
  CHECK(sim::parse_budget("2K").value == 2048);
  CHECK(sim::parse_budget("2K").unit == sim::Budget::Unit::tokens);
  CHECK(sim::parse_budget("1.5 MB").value == 1500000);
  CHECK(sim::parse_budget("1GiB").text == "1GiB");
  CHECK(sim::parse_budgets("10%,64, 2MiB").size() == 3);
}

TEST_CASE("a text that is not a budget is refused with the legal forms") {
  for (const char* text :
       {"", "0", "-3", "0%", "1.5", "abc", "12x", "nan", "inf", "1e400", "10%%", ",", "99999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(sim::parse_budgets(text), Catch::Contains("budget '") && Catch::Contains("25%"));
  }
}

TEST_CASE("budgets become tokens per lane") {
  // 2 layers x 2 KV heads, d = 8, f32: a token is (8 + 8) * 4 = 64 bytes in a lane, 256 in the model.
  const trace::MemoryTrace trace = test::random_trace({.prompt = 100, .decode = 3});
  const trace::Sequence sequence(trace);
  const policy::Composition h2o = policy::parse_composition("h2o", policy::builtin());
  const auto tokens = [&](const char* text) {
    return sim::budget_tokens(sim::parse_budget(text), sequence, h2o);
  };
  CHECK(tokens("7") == 7);
  CHECK(tokens("29%") == 29);  // 0.29 * 100 is 28.999... in binary
  CHECK(tokens("2560B") == 10);
  CHECK(tokens("2559B") == 9);
  CHECK(tokens("500") == 500);
  CHECK_THROWS_WITH(tokens("255B"), Catch::Contains("less than one token"));
  CHECK_THROWS_WITH(tokens("0.5%"), Catch::Contains("less than one token"));
}
