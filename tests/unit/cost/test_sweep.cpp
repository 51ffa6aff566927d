#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/estimate.hpp"

namespace kvsim::cost::test_sweep {
namespace {

/// Returns every number that the number of threads could change.
bool same(const SweepResult& a, const SweepResult& b) {
  const Estimate &x = a.estimate, &y = b.estimate;
  return a.problem == b.problem && x.budget == y.budget && x.fits == y.fits && x.peak() == y.peak() &&
         x.at_end.total() == y.at_end.total() && x.time.request == y.time.request &&
         x.time.per_token == y.time.per_token && x.time.first_token == y.time.first_token &&
         x.time.mean_step[OpClass::policy].bytes == y.time.mean_step[OpClass::policy].bytes;
}

}  // namespace

TEST_CASE("Sweeps are estimates in order, whatever the threads, and name impossible points", "[sweep]") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const std::vector<policy::Composition> policies{policy::parse_composition("snapkv", policy::builtin()),
                                                  policy::parse_composition("h2o", policy::builtin()),
                                                  policy::parse_composition("pyramidkv", policy::builtin())};
  std::vector<SweepPoint> points;
  for (const policy::Composition& policy : policies)
    for (const std::uint64_t prompt : {0, 1000, 4096})
      for (const std::uint64_t budget : {64, 512, 2048})
        for (const std::uint64_t batch : {1, 3, 8, 64}) {
          SweepPoint point{&model, &machine, &policy, {}, budget};
          point.serving.prompt = prompt;
          point.serving.generate = 100;
          point.serving.batch = batch;
          points.push_back(point);
        }
  const std::vector<SweepResult> one = sweep(points, 1), four = sweep(points, 4);
  REQUIRE(one.size() == points.size());
  std::size_t problems = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    CAPTURE(i);
    CHECK(same(one[i], four[i]));
    const SweepPoint& point = points[i];
    if (point.serving.prompt == 0) {
      CHECK_THAT(one[i].problem, Catch::Contains("prompt"));
      ++problems;
    } else if (point.budget > point.serving.prompt + 100) {
      CHECK_THAT(one[i].problem, Catch::Contains("above the context"));
      ++problems;
    } else {
      CHECK(same(one[i], {estimate(model, machine, point.serving, *point.composition, point.budget), {}}));
    }
  }
  CHECK(problems == 3 * 12 + 3 * 4);
  CHECK(sweep({}).empty());
}

}  // namespace kvsim::cost::test_sweep
