// Tests the peaks of attention rows, worked by hand.
#include <catch2/catch.hpp>

#include "sim/attention/importance_rule.hpp"
#include "sim/attention/prompt_attention.hpp"

namespace kvsim::test_peak_attention {
namespace {

sim::Peak peak_of(const std::vector<float>& row, std::size_t prompt, const char* rule) {
  sim::Peak out;
  sim::find_peak(sim::parse_peak(rule), row, prompt, out);
  return out;
}

}  // namespace

TEST_CASE("a row's peak: the best far key and those near it in weight") {
  //                              0     1    2     3     4     5 | 6 (after the cut)
  const std::vector<float> row = {0.1F, 0.F, 0.5F, 0.3F, 0.05F, 0.F, 0.05F};
  const sim::Peak peak = peak_of(row, 6, "sinks=1,recent=1");
  CHECK(peak.best == Approx(0.5));
  CHECK(peak.paid == Approx(0.8));  // 0.3 is at least half of 0.5
  CHECK(peak.positions == std::vector<policy::Position>{2, 3});
  CHECK(peak_of(row, 6, "sinks=1,recent=1,share=0.7").positions == std::vector<policy::Position>{2});
}

TEST_CASE("the first keys, the last before the cut and those after it are not far") {
  const std::vector<float> row = {0.1F, 0.F, 0.5F, 0.3F, 0.05F, 0.F, 0.05F};
  CHECK(peak_of(row, 6, "sinks=3,recent=1,low=0.3").positions == std::vector<policy::Position>{3});
  CHECK(peak_of(row, 6, "sinks=0,recent=3").positions == std::vector<policy::Position>{2});
  CHECK(peak_of(row, 6, "sinks=0,recent=4,low=0.2").positions.empty());  // 0.1 is below
  CHECK(peak_of(row, 6, "sinks=4,recent=32").positions.empty());         // nothing is far
  CHECK(peak_of({0.1F, 0.1F, 0.8F}, 2, "sinks=0,recent=0,low=0.2").positions.empty());
  // A row within the prompt sees no key after itself.
  CHECK(peak_of({0.2F, 0.8F}, 6, "sinks=0,recent=1").positions == std::vector<policy::Position>{1});
}

TEST_CASE("the rule is parsed like a policy's parameters") {
  CHECK(sim::parse_peak("").text == sim::PeakRule{}.text);
  CHECK(sim::parse_peak("threshold=0.4").threshold == 0.4);
  CHECK_THROWS_WITH(sim::parse_peak("treshold=0.4"), Catch::Contains("threshold"));
  CHECK_THROWS_WITH(sim::parse_peak("low=0.6"), Catch::Contains("low is above threshold"));
  CHECK_THROWS_WITH(sim::parse_peak("share=2"), Catch::Contains("share"));
  CHECK_THROWS(sim::parse_peak("share=0.5)+x(low=1"));
  CHECK(sim::parse_importance("").text == sim::ImportanceRule{}.text);
}

}  // namespace kvsim::test_peak_attention
