// Every published number: ours is what is expected of it, the list is complete, and a wrong number is
// noticed.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/validation/entries.hpp"

using namespace kvsim;
using namespace kvsim::cost;

namespace {

std::vector<Check> checks_of(const Source& source) {
  return source.checks(policy::builtin());
}

const Source& source_named(const std::string& name) {
  for (const Source& source : validation_sources())
    if (source.name == name) return source;
  throw std::runtime_error("no source " + name);
}

}  // namespace

TEST_CASE("every published number is met as expected") {
  for (const Source& source : validation_sources())
    for (const Check& check : checks_of(source)) {
      INFO(source.name << ": " << check.quantity << ": published " << check.published << ' ' << check.unit
                       << ", ours " << check.ours);
      CHECK(holds(check));
      if (check.expected != Status::not_derivable) CHECK(std::isfinite(check.ours));
    }
}

TEST_CASE("no source lost an entry") {
  // Per source: entries, exact, contradicted.
  struct Counts {
    std::size_t entries, exact, contradicted;
  };
  const std::map<std::string, Counts> expected{
      {"Sizes of public models", {51, 51, 0}},        // 17 models: parameters, weights, cache
      {"KVCrush", {23, 19, 1}},                       // eq. 1, 15 sets of Table III and their mean, Fig. 6
      {"XKV", {9, 5, 2}},                             // Fig. 1, Table IV, "5.2x"
      {"HashEvict", {41, 31, 5}},                     // 28 of Tables 2 and 10, three hash sizes, Table 1
      {"vLLM", {17, 2, 0}},                           //
      {"vAttention", {39, 36, 0}},                    // 24 of tokens per page
      {"Hydragen", {52, 44, 0}},                      // 14 points of three columns, two totals
      {"ShadowKV", {14, 12, 0}},                      // nine of the infinite batch, three of traffic
      {"FastSwitch", {9, 8, 0}},                      //
      {"DuoAttention", {10, 3, 0}},                   //
      {"Sparse reads", {10, 8, 0}},                   //
      {"Sizes stated in passing", {7, 3, 1}},         //
      {"Theoretical peak performance", {27, 16, 1}},  //
      {"H2O in FlexGen", {28, 7, 0}},                 // three model and four cache sizes
      {"FlexGen and H2O with offload", {25, 0, 1}},   //
      {"Vidur, timed products", {62, 0, 0}},  // every 24th of 1228 timings, four means, six all-reduces
      {"LLMServingSim, an RTX 4090 under vLLM", {48, 4, 0}},
      {"FasterTransformer", {7, 0, 0}},
      {"llama.cpp on an M2 Pro", {8, 0, 0}},
      {"SnapKV, Fig. 7", {6, 2, 1}},
      {"Gains that abstracts state", {20, 0, 0}}};
  CHECK(validation_sources().size() == expected.size());
  for (const Source& source : validation_sources()) {
    INFO(source.name);
    REQUIRE(expected.count(source.name) == 1);
    const Tally counts = tally(checks_of(source));
    CHECK(counts.entries == expected.at(source.name).entries);
    CHECK(counts.exact == expected.at(source.name).exact);
    CHECK(counts.contradicted == expected.at(source.name).contradicted);
    CHECK(counts.failed == 0);
  }
}

TEST_CASE("times are as good as calibration reached, source by source") {
  for (const Source& source : validation_sources()) {
    const std::optional<double> error = mean_time_error(checks_of(source));
    INFO(source.name);
    REQUIRE(error.has_value() == source.time_error.has_value());
    if (error) CHECK(*error <= *source.time_error);
  }
}

TEST_CASE("a wrong number of ours is noticed, whatever was expected") {
  for (const Source& source : validation_sources())
    for (const Check& check : checks_of(source)) {
      if (!asserted(check)) continue;
      INFO(source.name << ": " << check.quantity);
      Check wrong = check;
      const double unit = std::pow(10.0, -check.digits), size = std::abs(check.published);
      switch (check.expected) {
        case Status::exact:
          for (const double sign : {-1.0, 1.0}) {
            wrong.ours = check.published + sign * 0.51 * unit;
            CHECK_FALSE(holds(wrong));
          }
          break;
        case Status::within:
          for (const double sign : {-1.0, 1.0}) {
            wrong.ours = check.published + sign * (check.tolerance * size * 1.001 + 1e-12);
            CHECK_FALSE(holds(wrong));
          }
          break;
        case Status::at_most:
          wrong.ours = check.published * 1.001;
          CHECK_FALSE(holds(wrong));
          break;
        case Status::contradicted:
          wrong.ours = check.published;  // a contradiction that is none any more
          CHECK_FALSE(holds(wrong));
          break;
        case Status::not_derivable:
          break;
      }
      wrong.ours = std::nan("");
      CHECK_FALSE(holds(wrong));
    }
}

TEST_CASE("entries are complete: told apart, explained, in digits that sources print") {
  for (const Source& source : validation_sources()) {
    CHECK_FALSE(source.paper.empty());
    CHECK_FALSE(source.assumptions.empty());
    std::set<std::string> quantities;
    for (const Check& check : checks_of(source)) {
      INFO(source.name << ": " << check.quantity);
      CHECK(quantities.insert(check.quantity + " in " + check.unit).second);
      if (check.expected == Status::contradicted || check.expected == Status::not_derivable)
        CHECK_FALSE(check.why.empty());
      if (check.expected == Status::within) CHECK((check.tolerance > 0 && check.tolerance <= 0.5));
    }
  }
}

TEST_CASE("half a unit of the last printed digit is still what the source could have rounded") {
  Check check;
  check.published = 1.54;
  check.digits = 2;
  for (const double ours : {1.535, 1.54, 1.545}) {
    check.ours = ours;
    CHECK(holds(check));
  }
  for (const double ours : {1.5349, 1.5451, -1.54}) {
    check.ours = ours;
    CHECK_FALSE(holds(check));
  }
  check.evidence = Evidence::recalled;  // shown, never asserted
  CHECK(holds(check));
  CHECK_FALSE(asserted(check));
}

TEST_CASE("relative errors have a sign, and their mean is of asserted times alone") {
  Entries entries(Evidence::verified);
  entries.within(0.1, "bytes", "100", "GB", 150);
  entries.subject(Subject::time).within(0.1, "a", "100", "ms", 90).within(0.1, "b", "50", "ms", 60);
  entries.contradicted("c", "2", "x", 1, "no").not_derivable("d", "3", "x", "no");
  entries.evidence(Evidence::recalled).within(0.1, "e", "1", "s", 9);
  const std::vector<Check> checks = entries.take();
  CHECK(relative_error(checks[1]) == Approx(-0.1));
  CHECK(relative_error(checks[2]) == Approx(0.2));
  CHECK(mean_time_error(checks).value() == Approx(0.15));
  const Tally counts = tally(checks);
  CHECK(counts.entries == 6);
  CHECK(counts.within == 4);
  CHECK(counts.recalled == 1);
  CHECK(counts.derived == 0);
  CHECK(counts.failed == 2);  // 150 of 100 and 60 of 50
  CHECK_FALSE(mean_time_error({}).has_value());
}

TEST_CASE("a published number that is none is our mistake") {
  Entries entries(Evidence::verified);
  CHECK_THROWS_AS(entries.exact("q", "12 GB", "GB", 12), Error);
  CHECK_THROWS_AS(entries.exact("q", "", "GB", 12), Error);
}

TEST_CASE("the issue's headline numbers stand in the table as their sources print them") {
  const auto published = [](const char* source, const std::string& start) {
    for (const Check& check : checks_of(source_named(source)))
      if (check.quantity.rfind(start, 0) == 0) return check;
    throw std::runtime_error(start);
  };
  CHECK(published("KVCrush", "KV cache of OPT-175B").ours == 4608);
  CHECK(published("KVCrush", "KV cache over weights").ours == Approx(14.17).epsilon(1e-3));
  CHECK(published("HashEvict", "KV cache, 70B").ours == 20);
  CHECK(published("XKV", "throughput, XKV at batch 20").expected == Status::contradicted);
  CHECK(published("DuoAttention", "3.3M tokens, full cache in 4 bits").ours == Approx(108.134).epsilon(1e-5));
}
