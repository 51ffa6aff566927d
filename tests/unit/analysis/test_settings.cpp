#include <catch2/catch.hpp>

#include "analysis/kinds/settings.hpp"
#include "sim/base/error.hpp"

using namespace kvsim;
using namespace kvsim::analysis;
using Catch::Contains;

namespace {

Settings with(const std::string& value) {
  Settings settings({{"at", "1", "N", ""}});
  settings.set("at", value);
  return settings;
}

}  // namespace

TEST_CASE("settings: defaults, values, and names that are not there") {
  Settings settings({{"bits", "8,16", "LIST", ""}, {"seed", "0", "N", ""}});
  CHECK(settings.wholes("bits", 1, 64) == std::vector<std::uint64_t>{8, 16});
  settings.set("seed", "7");
  CHECK(settings.whole("seed", 0, 9) == 7);
  CHECK_THROWS_WITH(settings.set("bit", "8"), Contains("unknown setting 'bit'") && Contains("bits"));
  CHECK_THROWS_AS(settings.text("nothing"), Error);
}

TEST_CASE("settings: numbers are whole, in range and nothing else") {
  CHECK(with("64").whole("at", 1, 64) == 64);
  for (const char* wrong : {"", "0", "65", "-1", "1.5", "1x", " 1", "0x10", "99999999999999999999"})
    CHECK_THROWS_WITH(with(wrong).whole("at", 1, 64),
                      Contains("is not a whole number from 1 to 64") && Contains("--at"));
  CHECK(with("0.25").number("at", 0, 1) == 0.25);
  for (const char* wrong : {"", "nan", "inf", "2", "0,5"})
    CHECK_THROWS_AS(with(wrong).number("at", 0, 1), Error);
  CHECK(with("10%,0.5,1").shares("at") == std::vector<double>{0.1, 0.5, 1});
  for (const char* wrong : {"", "101%", "1.1", "-0.1", "%", "0.1,,0.2", "0.1,"})
    CHECK_THROWS_AS(with(wrong).shares("at"), Error);
}

TEST_CASE("settings: commas inside a policy do not separate") {
  CHECK(with("snapkv(window=8,pool=max:7),h2o").texts("at") ==
        std::vector<std::string>{"snapkv(window=8,pool=max:7)", "h2o"});
}
