#include <catch2/catch.hpp>

#include "analysis/kinds/kind.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_settings {

using Catch::Contains;

TEST_CASE("settings: defaults, values, and names that are not there") {
  Settings settings({{.name = "bits", .type = ParamType::counts, .fallback = "8,16", .min = 1, .max = 64},
                     {.name = "seed", .fallback = "0", .max = 9}});
  CHECK(settings.counts("bits") == std::vector<std::uint64_t>{8, 16});
  settings.set("seed", "7", "--seed");
  CHECK(settings.count("seed") == 7);
  CHECK(settings.text() == "bits=8,16,seed=7");
  CHECK_THROWS_WITH(settings.set("bit", "8", "here"),
                    Contains("here: unknown setting 'bit'") && Contains("bits"));
}

TEST_CASE("settings: what is set is checked at once, and a refused value changes nothing") {
  Settings settings({{.name = "points", .fallback = "2", .min = 1, .max = 64}});
  CHECK_THROWS_WITH(settings.set("points", "65", "--points"),
                    Contains("--points: points=65 is not legal: points must be a whole number from 1 to 64"));
  CHECK(settings.count("points") == 2);
}

TEST_CASE("settings: every kind's defaults are legal") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    CHECK(Settings(kind.settings).entries.size() == kind.settings.size());
    for (const ParamSpec& param : kind.settings) CHECK_FALSE(param.help.empty());
  }
}

}  // namespace kvsim::analysis::test_settings
