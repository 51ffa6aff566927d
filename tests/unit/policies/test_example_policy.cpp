// The policy that policies/README.md shows: it compiles, registers and works.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::value_norm {
PolicySpec spec();
}

namespace kvsim::policy::test::test_example_policy {

TEST_CASE("the policy of the README keeps large values, worked by hand") {
  Registry registry = builtin();
  registry.add(value_norm::spec());
  // Norms 1 9 2 8 | 3 7, one sink, budget 3: of the prompt 0, 1, 3 are kept; then 4 takes the place of 3 (8 <
  // 9), and 5 that of 4.
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  const std::vector<float> norms = {1, 9, 2, 8, 3, 7};
  for (std::size_t j = 0; j < norms.size(); ++j)
    run.values[0][j * static_cast<std::size_t>(run.unit.value_dim)] = norms[j];
  const Fed fed = feed(parse_composition("value_norm(sinks=1)", registry), run, 3);
  CHECK(fed.kept == std::vector<Position>{0, 1, 3});
  CHECK(fed.held == std::vector<std::vector<Position>>{{0, 1, 4}, {0, 1, 5}});
}

}  // namespace kvsim::policy::test::test_example_policy
