// Every registered eviction and preset, swept over odd shapes and budgets. Nothing is listed by name, so new
// policies are included.
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

using namespace kvsim::policy;
using namespace kvsim::policy::test;

namespace {

const std::vector<Shape> kShapes = {{.prompt = 1, .decode = 3, .n_lanes = 1, .group = 1},
                                    {.prompt = 1, .decode = 4, .n_lanes = 1, .group = 8},
                                    {.prompt = 2, .decode = 0, .n_lanes = 1, .group = 2},
                                    {.prompt = 7, .decode = 9, .n_lanes = 1, .group = 1},
                                    {.prompt = 40, .decode = 13, .n_lanes = 1, .group = 3},
                                    {.prompt = 41, .decode = 50, .n_lanes = 2, .group = 2}};

}  // namespace

TEST_CASE("every policy honours the contract at every budget of interest") {
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    const std::size_t floor = composition.floor();
    for (const Shape& shape : kShapes) {
      if (shape.n_lanes > 1 && !composition.layer_unit()) continue;
      const std::set<std::size_t> budgets = {floor,        floor + 1,        shape.prompt - 1,
                                             shape.prompt, shape.prompt + 1, shape.prompt + shape.decode + 5};
      for (const std::size_t budget : budgets) {
        if (budget < floor) continue;
        CAPTURE(policy, shape.prompt, budget);
        for (const int levels : {1, 3, 1000000}) {
          const Run run = random_run(shape, 7 + budget, levels);
          const Fed fed = feed(composition, run, budget);
          if (composition.eviction.spec->own_budget) continue;
          if (budget >= shape.prompt) CHECK(fed.kept.size() == shape.prompt);
          if (budget >= shape.prompt + shape.decode && shape.decode > 0)
            CHECK(fed.held.back().size() == run.length());
        }
      }
    }
  }
}

TEST_CASE("neither the cut into blocks nor rows that another policy asks for change a decision") {
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    const Shape shape{.prompt = 45, .decode = 12, .n_lanes = composition.layer_unit() ? 2 : 1, .group = 2};
    const Run run = random_run(shape, 11);
    for (const std::size_t budget : {composition.floor(), composition.floor() + 4}) {
      CAPTURE(policy, budget);
      const Fed reference = feed(composition, run, budget, {.block_rows = 1, .every_row = false});
      for (const std::size_t block_rows : {2U, 8U, 13U, 100U}) {
        for (const bool every_row : {false, true}) {
          const Fed fed = feed(composition, run, budget, {.block_rows = block_rows, .every_row = every_row});
          CHECK(fed.kept == reference.kept);
          CHECK(fed.held == reference.held);
        }
      }
    }
  }
}

TEST_CASE("column sums stand in for rows without changing a decision, where a policy says so") {
  std::set<std::string> served;
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    const Shape shape{.prompt = 45, .decode = 12, .n_lanes = composition.layer_unit() ? 2 : 1, .group = 2};
    const Run run = random_run(shape, 12);
    if (composition.eviction.spec->make_eviction) {
      const auto eviction = composition.eviction.make_eviction(run.unit);
      if (eviction->rows_beside_columns() < eviction->prompt_rows()) served.insert(policy);
    }
    for (const std::size_t budget : {composition.floor(), composition.floor() + 4}) {
      CAPTURE(policy, budget);
      const Fed reference = feed(composition, run, budget);
      for (const bool every_row : {false, true}) {  // another policy's rows change nothing either
        const Fed fed = feed(composition, run, budget, {.every_row = every_row, .columns = true});
        CHECK(fed.kept == reference.kept);
        CHECK(fed.held == reference.held);
      }
    }
  }
  for (const char* policy : {"h2o", "h2o(normalise=mean)", "roco", "q_hitter", "ems_like", "vatp"})
    CHECK(served.contains(policy));
  for (const char* policy : {"fastgen", "keyformer", "snapkv", "a2sf", "tova"}) {
    INFO(policy);
    CHECK_FALSE(served.contains(policy));
  }
}
