// Every registered eviction and preset, swept over odd shapes and budgets. Nothing is listed by name, so new
// policies are included.
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_registry_sweep {

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
          if (composition.eviction.spec->own_budget()) continue;
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

TEST_CASE(
    "the last prompt token that comes again with another key and value is as if the prompt had held those") {
  std::set<std::string> changed;
  std::vector<std::string> policies = kvsim::test::every_eviction();
  for (const char* wrapped :
       {"kvcrush(base=keydiff)", "kvcrush(base=keydiff,bits=kv_head)", "vatp(base=l2_norm)"})
    policies.push_back(wrapped);
  for (const std::string& policy : policies) {
    const Composition composition = parse_composition(policy, builtin());
    if (composition.eviction.spec->is_oracle()) continue;
    const Shape shape{.prompt = 45, .decode = 40, .n_lanes = composition.layer_unit() ? 2 : 1, .group = 2};
    for (const std::uint64_t seed : {21U, 22U, 23U}) {
      const Run before = random_run(shape, seed), other = random_run(shape, seed + 100);
      Run after = before;
      for (auto of : {&Run::keys, &Run::values})
        for (std::size_t lane = 0; lane < (before.*of).size(); ++lane) {
          const std::size_t dim = (before.*of)[lane].size() / before.length();
          for (std::size_t c = (shape.prompt - 1) * dim; c < shape.prompt * dim; ++c)
            (after.*of)[lane][c] = 3 * (other.*of)[lane][c];
        }
      // With a budget of the prompt it is held whole, whatever was ranked.
      const std::size_t budget = std::max(composition.floor(), shape.prompt);
      CAPTURE(policy, seed);
      const Fed expected = feed(composition, after, budget);
      CHECK(feed(composition, before, budget, {.again = &after}).held == expected.held);
      CHECK(feed(composition, before, budget, {.again = &before}).held ==
            feed(composition, before, budget).held);
      if (feed(composition, before, budget).held != expected.held) changed.insert(policy);
    }
  }
  for (const char* policy :
       {"keydiff", "l2_norm", "vatp", "q_hitter", "hashevict", "kvcrush(base=keydiff)"}) {
    INFO(policy);
    CHECK(changed.contains(policy));
  }
}

TEST_CASE("column sums stand in for rows without changing a decision, where a policy says so") {
  std::set<std::string> served;
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    const Shape shape{.prompt = 45, .decode = 12, .n_lanes = composition.layer_unit() ? 2 : 1, .group = 2};
    const Run run = random_run(shape, 12);
    if (!composition.eviction.spec->is_oracle()) {
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

}  // namespace kvsim::policy::test::test_registry_sweep
