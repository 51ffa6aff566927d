#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/feed/lane_budgets.hpp"

namespace kvsim::sim::test_lane_budgets {
namespace {

using Tokens = std::vector<std::size_t>;

policy::Composition composition(const std::string& text) {
  return policy::parse_composition(text, policy::builtin());
}

/// An allocation that returns the given budgets.
struct Told final : policy::Allocation {
  explicit Told(Tokens tokens) : answer(std::move(tokens)) {}
  Tokens allocate(const policy::AllocationRequest&) const override { return answer; }
  Tokens answer;
};

Tokens split(Tokens answer, std::size_t budget, bool own_total = false) {
  const policy::PolicySpec spec{
      .name = "told",
      .rule = policy::AllocationRule{
          .inexact = [&](const policy::Params&) { return own_total; },
          .own_total = [&](const policy::Params&) { return own_total; },
          .make = [&](const policy::Params&) { return std::make_unique<Told>(answer); }}};
  policy::Composition asked = composition("h2o");
  asked.allocation = {&spec, {}};
  return lane_budgets(asked, {2, 1, 100}, budget, {});
}

}  // namespace

TEST_CASE("every lane gets the same where there is nothing to split") {
  CHECK(lane_budgets(composition("h2o"), {2, 2, 100}, 40, {}) == Tokens{40, 40, 40, 40});
  CHECK(lane_budgets(composition("h2o+pyramid"), {2, 2, 100}, 100, {}) == Tokens{100, 100, 100, 100});
  CHECK(lane_budgets(composition("full"), {2, 1, 100}, 40, {}) ==
        Tokens{policy::kNeverEvict, policy::kNeverEvict});
}

TEST_CASE("a lane that is allocated its whole prompt gets a budget that exceeds it") {
  CHECK(split({60, 20}, 40) == Tokens{60, 20});
  CHECK(split({100, 20}, 130, true) == Tokens{130, 20});
  CHECK(split({policy::kNeverEvict, 20}, 130, true) == Tokens{policy::kNeverEvict, 20});
}

TEST_CASE("a budget that covers the prompt drops nothing, whatever a policy always keeps") {
  CHECK(composition("snapkv").floor() == 32);
  CHECK(lane_budgets(composition("snapkv"), {2, 1, 18}, 18, {}) == Tokens{32, 32});
  CHECK(lane_budgets(composition("snapkv"), {2, 1, 18}, 40, {}) == Tokens{40, 40});
  CHECK(lane_budgets(composition("snapkv+pyramid"), {2, 1, 18}, 18, {}) == Tokens{32, 32});
}

TEST_CASE("a layer with a window brings a budget of its own, and what it cannot hold goes to the others") {
  // Of three layers the first two hold 20 of a prompt of 100, and a quarter of each is 5, 5 and 25.
  const LaneShape shape{3, 1, 100, {20, 20, 100}, {5, 5, 25}};
  const auto split = [&](const std::string& text) { return lane_budgets(composition(text), shape, 5, {}); };
  CHECK(split("window") == Tokens{5, 5, 25});
  CHECK(split("window+whole_windows") == Tokens{20, 20, 25});
  // Above a floor of 1, the line 1.5, 1, 0.5 weighs what each brings: 6, 4 and 12 of 22.
  CHECK(split("window+pyramid(beta=2)") == Tokens{10, 7, 18});
  // 35 tokens, of which the first two layers could have 20 each.
  CHECK(split("window+fixed(shares=6:1:0)") == Tokens{20, 10, 5});
  CHECK(split("window+exempt(first=1)") == Tokens{policy::kNeverEvict, 8, 7});
  CHECK_THROWS_WITH(split("window+pyramid(variant=kvpress)"), Catch::Contains("layers of one size"));
  CHECK_THROWS_WITH(split("snapkv(window=8)"), Catch::Contains("below the 8"));
  // A budget that covers windows leaves them whole.
  CHECK(lane_budgets(composition("window"), {2, 1, 100, {20, 100}, {40, 40}}, 40, {}) == Tokens{40, 40});
  CHECK(lane_budgets(composition("window+fixed(shares=1:1)"), {2, 1, 100, {20, 100}, {40, 40}}, 40, {}) ==
        Tokens{40, 40});
}

TEST_CASE("an allocation that breaks its contract is a bug that names it") {
  using Catch::Contains;
  CHECK_THROWS_WITH(split({60}, 40), Contains("allocation 'told' gave budgets to 1 lanes"));
  CHECK_THROWS_WITH(split({60, 30}, 40), Contains("gave 90 tokens instead of 80"));
  CHECK_THROWS_WITH(split({80, 0}, 40), Contains("gave lane 1 0 tokens"));
  CHECK_THROWS_WITH(split({110, 30}, 70), Contains("gave lane 0 110 tokens"));
}

TEST_CASE("a budget below what a policy keeps in every lane is refused by name") {
  const policy::Composition sinks = composition("streaming_llm(sinks=4)");
  CHECK_NOTHROW(check_floor(sinks, sinks.floor(), "the budget"));
  CHECK_THROWS_WITH(check_floor(sinks, sinks.floor() - 1, "budget '1%'"),
                    Catch::Contains("budget '1%' is " + std::to_string(sinks.floor() - 1)));
  CHECK_NOTHROW(check_floor(composition("full"), 1, "the budget"));
}

}  // namespace kvsim::sim::test_lane_budgets
