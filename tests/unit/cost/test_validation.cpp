// For every published number ours is as expected, the list is complete, and a wrong number fails.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost::test_validation {

namespace {

/// Computed once: each test looks at those of every source.
const std::vector<Check>& checks_of(const Source& source) {
  static std::map<std::string, std::vector<Check>> known;
  const auto found = known.find(source.name);
  if (found != known.end()) return found->second;
  return known[source.name] = cost::checks_of(source, policy::builtin());
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

TEST_CASE("no source lost an entry, and every entry is of its class") {
  // Per source: printed, of these exact, held out, own arithmetic, fitted; missed, contradicted; entries.
  struct Counts {
    std::size_t printed, printed_exact, held_out, own, fitted, missed, contradicted, entries;
  };
  const std::map<std::string, Counts> expected{
      {"Sizes of public models", {0, 0, 0, 51, 0, 0, 0, 51}},  // 17 models: parameters, weights, cache
      {"KVCrush", {20, 19, 0, 0, 0, 0, 1, 23}},      // eq. 1, 15 sets of Table III and their mean, Fig. 6
      {"XKV", {3, 3, 3, 0, 1, 0, 2, 9}},             // Fig. 1, Table IV, "5.2x"
      {"HashEvict", {3, 3, 16, 0, 15, 0, 5, 45}},    // hash sizes; HashEvict's rows; full, L2 and Table 1
      {"vLLM", {3, 2, 0, 0, 0, 0, 0, 17}},           //
      {"vAttention", {0, 0, 0, 36, 0, 0, 0, 39}},    // 24 of tokens per page
      {"Hydragen", {1, 0, 0, 49, 0, 0, 0, 52}},      // 14 points of three columns, two totals
      {"ShadowKV", {0, 0, 4, 6, 5, 0, 0, 17}},       // nine of the infinite batch, six of traffic and sizes
      {"FastSwitch", {0, 0, 0, 8, 0, 0, 0, 9}},      //
      {"DuoAttention", {1, 0, 0, 3, 0, 0, 0, 10}},   //
      {"Sparse reads", {2, 2, 0, 14, 0, 2, 0, 20}},  // 16 of selections, by what they state
      {"What representations take", {1, 0, 0, 12, 1, 0, 0, 31}},  // 12 by hand
      {"Sizes stated in passing", {1, 0, 1, 2, 1, 0, 1, 7}},
      {"Theoretical peak performance", {0, 0, 0, 17, 0, 0, 0, 27}},
      {"H2O in FlexGen", {13, 7, 1, 0, 11, 2, 0, 27}},  // sizes, savings, ratios; seven peaks, seven steps
      {"FlexGen and H2O with offload", {0, 0, 17, 0, 3, 1, 1, 25}},
      {"Vidur, timed products",
       {0, 0, 28, 0, 34, 0, 0, 62}},  // every 25th of 1098, four means, six all-reduces
      {"LLMServingSim, an RTX 4090 under vLLM", {4, 4, 20, 0, 18, 3, 0, 52}},
      {"FasterTransformer", {0, 0, 6, 0, 0, 0, 0, 6}},
      {"llama.cpp on an M2 Pro", {0, 0, 3, 0, 3, 0, 0, 8}},
      {"SnapKV, Fig. 7", {0, 0, 0, 2, 3, 0, 1, 6}},
      {"Block Transformer", {0, 0, 0, 9, 0, 1, 0, 10}},  // sizes, caches; the gain is missed
      {"YOCO",
       {5, 3, 3, 3, 0, 5, 1, 17}},  // sizes and memory; the prefill of 512K and all throughputs are missed
      {"TriForce, EasySpec, QuantSpec",
       {0, 0, 0, 11, 0, 1, 0, 13}},  // eight of QuantSpec; EasySpec is missed
      {"Gains that abstracts state", {0, 0, 0, 0, 0, 0, 0, 20}}};
  CHECK(validation_sources().size() == expected.size());
  for (const Source& source : validation_sources()) {
    INFO(source.name);
    REQUIRE(expected.count(source.name) == 1);
    const Counts& wanted = expected.at(source.name);
    const Tally counts = tally(checks_of(source));
    CHECK(counts.printed == wanted.printed);
    CHECK(counts.printed_exact == wanted.printed_exact);
    CHECK(counts.held_out == wanted.held_out);
    CHECK(counts.own_arithmetic == wanted.own);
    CHECK(counts.fitted == wanted.fitted);
    CHECK(counts.missed == wanted.missed);
    CHECK(counts.contradicted == wanted.contradicted);
    CHECK(counts.entries == wanted.entries);
    CHECK(counts.printed + counts.held_out + counts.own_arithmetic + counts.fitted + counts.missed +
              counts.contradicted + counts.not_derivable + counts.recalled ==
          counts.entries);
    CHECK(counts.failed == 0);
  }
}

TEST_CASE("numbers that rest on a fit are never classified as printed") {
  std::set<std::string> rested_on;
  for (const Source& source : validation_sources())
    for (const Check& check : checks_of(source)) {
      INFO(source.name << ": " << check.quantity);
      rested_on.insert(check.rests_on.begin(), check.rests_on.end());
      if (!check.rests_on.empty()) CHECK(class_of(check) != Class::printed);
      if (class_of(check) == Class::printed) CHECK(check.evidence == Evidence::verified);
      const bool fitted_to_itself =
          std::count(check.rests_on.begin(), check.rests_on.end(), check.measurements) > 0;
      if (fitted_to_itself && !check.held_out) CHECK(class_of(check) != Class::held_out);
    }
  // The entries that are known to be fitted, whatever the checks state.
  for (const char* measurements :
       {"HashEvict, Table 1, decode", "SnapKV, Fig. 7", "FlexGen's run of OPT-175B", "FlexGen's runs on a T4",
        "vLLM's blocks on an RTX 4090", "matrix products on a100-80-sxm", "matrix products on h100-sxm",
        "matrix products on a40", "matrix products on rtx-4090", "decode attention on rtx-4090",
        "prefill attention on rtx-4090", "element-wise operations on rtx-4090", "all-reduces on a100-80-sxm",
        "all-reduces on h100-sxm", "llama.cpp on m2-pro", "H2O's logs, decode steps", "H2O's logs, peaks",
        "ZipCache, memory saved", "ShadowKV, infinite batch"}) {
    INFO(measurements);
    CHECK(rested_on.count(measurements) == 1);
  }
}

TEST_CASE("a fit and the numbers it was fitted to share one name") {
  // A name that no entry has would make fitted entries appear as held out.
  std::set<std::string> fitted_entries, held_out_entries;
  for (const Source& source : validation_sources())
    for (const Check& check : checks_of(source))
      (check.held_out ? held_out_entries : fitted_entries).insert(check.measurements);
  // Element-wise operations of Vidur's devices have no entries (test_measured_times.cpp).
  const std::set<std::string> elsewhere{"element-wise operations on a100-80-sxm",
                                        "element-wise operations on h100-sxm",
                                        "element-wise operations on a40"};
  for (const Machine& machine : known_machines())
    for (const Fit& fit : machine.fitted) {
      INFO(machine.name << ": " << fit.measurements);
      CHECK(fitted_entries.count(fit.measurements) + elsewhere.count(fit.measurements) == 1);
    }
  for (const std::string& measurements : held_out_entries) {
    INFO(measurements);
    CHECK(fitted_entries.count(measurements) == 1);
  }
}

TEST_CASE("the class follows from evidence, expectation and the fits that an entry rests on") {
  Check check;
  check.evidence = Evidence::verified;
  check.measurements = "theirs";
  CHECK(class_of(check) == Class::printed);
  check.rests_on = {"others'"};
  CHECK(class_of(check) == Class::held_out);
  check.rests_on = {"others'", "theirs"};
  CHECK(class_of(check) == Class::fitted);
  check.held_out = true;
  CHECK(class_of(check) == Class::held_out);
  for (const Status unclaimed : {Status::missed, Status::contradicted, Status::not_derivable}) {
    check.expected = unclaimed;
    CHECK(class_of(check) == Class::none);
  }
  check.expected = Status::within;
  check.evidence = Evidence::derived;
  CHECK(class_of(check) == Class::own_arithmetic);
  check.evidence = Evidence::recalled;
  CHECK(class_of(check) == Class::none);
}

TEST_CASE("the fits that an entry rests on are found by changing the fitted numbers") {
  Source source;
  source.name = "made up";
  source.checks = [](Inputs& inputs) {
    Entries entries(Evidence::verified);
    const double whole = inputs.fitted("halves", 2);
    const Machine machine = inputs.machine("a40");
    entries.exact("nothing", "1", "", 1);
    entries.exact("the halves", "2", "", whole);
    entries.exact("rounded down", "20", "", std::floor(whole * 10 + 0.9));
    entries.exact("what the datasheet says", "696", "GB/s", machine.bandwidth / 1e9);
    entries.within(0.5, "what the machine reaches", "500", "GB/s",
                   machine.bandwidth * machine.ceilings.memory / 1e9);
    entries.not_derivable("out of reach", "3", "", "no formula");
    return entries.take();
  };
  const std::vector<Check> checks = checks_of(source);
  CHECK(checks[0].rests_on.empty());
  CHECK(checks[1].rests_on == std::vector<std::string>{"halves"});
  CHECK(checks[2].rests_on == std::vector<std::string>{"halves"});
  CHECK(checks[3].rests_on.empty());
  CHECK(checks[4].rests_on == std::vector<std::string>{"matrix products on a40"});
  CHECK(checks[5].rests_on.empty());
}

TEST_CASE("held-out times meet their aim, source by source, or are shown as missed") {
  for (const Source& source : validation_sources()) {
    const std::vector<Check> checks = checks_of(source);
    const std::optional<double> error = mean_time_error(checks, Class::held_out);
    INFO(source.name);
    if (source.held_out_error) {
      REQUIRE(error.has_value());
      CHECK(*error <= *source.held_out_error);
    } else if (error) {
      CHECK(tally(checks).missed > 0);
    }
  }
}

TEST_CASE("a wrong number of ours fails, whatever was expected") {
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
        case Status::missed:
          wrong.ours = check.published * (1 + 0.999 * check.tolerance);  // met after all: must say so
          CHECK_FALSE(holds(wrong));
          break;
        case Status::at_most:
          wrong.ours = check.published * 1.001;
          CHECK_FALSE(holds(wrong));
          break;
        case Status::contradicted:
          wrong.ours = check.published;  // no longer a contradiction
          CHECK_FALSE(holds(wrong));
          break;
        case Status::not_derivable:
          break;
      }
      wrong.ours = std::nan("");
      CHECK_FALSE(holds(wrong));
    }
}

TEST_CASE("entries are complete: distinct, explained, in digits that sources print") {
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

TEST_CASE("half a unit of the last printed digit still rounds to the printed number") {
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

TEST_CASE("relative errors have a sign, and their mean is of asserted times of one class") {
  Entries entries(Evidence::verified);
  entries.within(0.1, "bytes", "100", "GB", 150);
  entries.subject(Subject::time).within(0.1, "a", "100", "ms", 90).within(0.1, "b", "50", "ms", 60);
  entries.contradicted("c", "2", "x", 1, "no").not_derivable("d", "3", "x", "no");
  entries.evidence(Evidence::recalled).within(0.1, "e", "1", "s", 9);
  std::vector<Check> checks = entries.take();
  CHECK(relative_error(checks[1]) == Approx(-0.1));
  CHECK(relative_error(checks[2]) == Approx(0.2));
  CHECK(mean_time_error(checks, Class::printed).value() == Approx(0.15));
  CHECK_FALSE(mean_time_error(checks, Class::held_out).has_value());
  checks[2].rests_on = {"others"};
  checks[2].expected = Status::missed;  // a missed entry counts, too
  CHECK(mean_time_error(checks, Class::printed).value() == Approx(0.1));
  CHECK(mean_time_error(checks, Class::held_out).value() == Approx(0.2));
  const Tally counts = tally(checks);
  CHECK(counts.entries == 6);
  CHECK(counts.printed == 2);
  CHECK(counts.missed == 1);
  CHECK(counts.contradicted == 1);
  CHECK(counts.not_derivable == 1);
  CHECK(counts.recalled == 1);
  CHECK(counts.failed == 1);  // 150 of 100
  CHECK_FALSE(mean_time_error({}, Class::printed).has_value());
}

TEST_CASE("a published number that is not a number is a bug") {
  Entries entries(Evidence::verified);
  CHECK_THROWS_AS(entries.exact("q", "12 GB", "GB", 12), Error);
  CHECK_THROWS_AS(entries.exact("q", "", "GB", 12), Error);
}

TEST_CASE("the headline numbers stand in the table as their sources print them") {
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

}  // namespace kvsim::cost::test_validation
