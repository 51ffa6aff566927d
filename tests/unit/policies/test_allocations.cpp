// Every registered allocation, whatever it measures.
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocations {

namespace {

struct Model {
  std::size_t n_layers;
  Shape shape;
  int levels;
};

const std::vector<Model> kModels = {{1, {.prompt = 1, .decode = 0, .n_lanes = 1, .group = 1}, 1000},
                                    {1, {.prompt = 30, .decode = 0, .n_lanes = 1, .group = 8}, 1000},
                                    {4, {.prompt = 7, .decode = 0, .n_lanes = 3, .group = 2}, 3},
                                    {6, {.prompt = 41, .decode = 0, .n_lanes = 2, .group = 1}, 1000000},
                                    {5, {.prompt = 60, .decode = 0, .n_lanes = 1, .group = 2}, 1}};

void check(const Composition& composition, const AllocationRequest& request) {
  Tokens tokens;
  try {
    tokens = allocate(composition, request);
  } catch (const Error& error) {
    // Rules with exempt layers need a budget large enough for them.
    REQUIRE(error.kind() == ErrorKind::usage);
    REQUIRE(request.budget < request.prompt);
    return;
  }
  REQUIRE(tokens.size() == request.n_lanes());
  if (!composition.allocation.inexact())
    CHECK(total(tokens, request.prompt) == std::min(request.budget, request.prompt) * tokens.size());
  for (std::size_t lane = 0; lane < tokens.size(); ++lane) {
    CHECK(tokens[lane] >= std::min(request.floor, request.prompt));
    CHECK((tokens[lane] <= request.prompt || tokens[lane] == kNeverEvict));
    if (request.shared) CHECK(tokens[lane] == tokens[lane - lane % request.n_kv_heads]);
  }
  CHECK(tokens == allocate(composition, request));
}

}  // namespace

TEST_CASE("uniform gives every lane the budget, the prompt at most") {
  CHECK(allocate("uniform", {.n_layers = 2, .n_kv_heads = 3, .prompt = 50, .budget = 7, .floor = 1}) ==
        Tokens(6, 7));
  CHECK(allocate("uniform", {.n_layers = 2, .n_kv_heads = 1, .prompt = 5, .budget = 7, .floor = 6}) ==
        Tokens(2, 5));
}

TEST_CASE("a budget below the floor is refused by every allocation that splits it") {
  for (const std::string& text : kvsim::test::every_allocation("snapkv(window=4)")) {
    const Composition composition = parse_composition(text, builtin());
    if (composition.allocation.own_total()) continue;
    const AllocationRequest request = measured_request(composition, random_layers(2, {.prompt = 9}, 1), 3);
    CHECK_THROWS_WITH(allocate(composition, request), Catch::Contains("3 tokens") && Catch::Contains("4"));
  }
}

TEST_CASE("every allocation keeps its promises at every budget of interest") {
  for (const char* eviction :
       {"snapkv(window=1)", "snapkv(window=4,unit=layer)", "snapkv(window=5,sinks=2)", "l2_norm", "h2o"})
    for (const std::string& text : kvsim::test::every_allocation(eviction)) {
      const Composition composition = parse_composition(text, builtin());
      for (const Model& model : kModels) {
        const Layers layers = random_layers(model.n_layers, model.shape, 5, model.levels);
        const std::size_t floor = composition.floor(), prompt = model.shape.prompt;
        for (const std::size_t budget :
             std::set<std::size_t>{floor, floor + 1, floor + 3, prompt / 2, prompt - 1, prompt, prompt + 1}) {
          if (budget < floor) continue;
          CAPTURE(text, model.n_layers, prompt, budget);
          check(composition, measured_request(composition, layers, budget));
        }
      }
    }
}

}  // namespace kvsim::policy::test::test_allocations
