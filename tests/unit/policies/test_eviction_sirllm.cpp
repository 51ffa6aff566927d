// SirLLM: the tokens that the model has least expected.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_sirllm {

using Positions = std::vector<Position>;

namespace {

Run run_of_surprises(std::size_t prompt, const std::vector<float>& surprises) {
  Run run = blank_run({.prompt = prompt, .decode = surprises.size() - prompt, .n_lanes = 1, .group = 1});
  run.surprises = surprises;
  return run;
}

}  // namespace

TEST_CASE("sirllm: a worked example", "[sirllm]") {
  // Budget 4 with a sink: of the prompt 1, 3 and 4 are the least expected. 6 arrives, and 3 (2) leaves; 7
  // arrives, and 1 (3) leaves; 8 arrives, and 7 (0.1) leaves.
  const Fed fed = feed("sirllm(sinks=1)", run_of_surprises(6, {NAN, 3, 1, 2, 5, 0.5F, 4, 0.1F, 2}), 4);
  CHECK(fed.kept == Positions{0, 1, 3, 4});
  CHECK(fed.held == std::vector<Positions>{{0, 1, 4, 6}, {0, 4, 6, 7}, {0, 4, 6, 8}});
}

TEST_CASE("sirllm: old rounds fade", "[sirllm]") {
  // Rounds of 3. At the end of the prompt its first round counts half: 2, 0.5, 1, then 1.5, 3, 0.9. With 6 a
  // third begins: 3 leaves, and 0 and 4 count 1 and 1.5 from then on, so that 0 leaves before 7 (1.2).
  const Run run = run_of_surprises(6, {4, 1, 2, 1.5F, 3, 0.9F, 0.1F, 1.2F, 5});
  const Fed fed = feed("sirllm(sinks=0,decay=0.5,round=3)", run, 3);
  CHECK(fed.kept == Positions{0, 3, 4});
  CHECK(fed.held == std::vector<Positions>{{0, 4, 6}, {0, 4, 7}, {4, 7, 8}});
  CHECK(feed("sirllm(sinks=0,round=3)", run, 3).held.back() == Positions{0, 4, 8});
  CHECK_THROWS_WITH(parse_composition("sirllm(decay=0.5,round=0)", builtin()), Catch::Contains("round="));
}

TEST_CASE("sirllm: limits", "[sirllm]") {
  // What nobody knows counts as the largest, and of equals the older stays.
  CHECK(feed("sirllm(sinks=0)", run_of_surprises(4, {NAN, 1, 2, 3}), 2).kept == Positions{0, 3});
  CHECK(feed("sirllm(sinks=0)", run_of_surprises(4, {NAN, 1, 3, 3}), 2).kept == Positions{0, 2});
  CHECK(feed("sirllm(sinks=0)", run_of_surprises(3, {2, 1, 1.8F, NAN, 1.5F}), 3).held.back() ==
        Positions{0, 3, 4});
  // What is less and less expected is a window, the other way round the first tokens.
  std::vector<float> rising, falling;
  for (int i = 0; i < 20; ++i)
    rising.push_back(static_cast<float>(i)), falling.push_back(30.0F - static_cast<float>(i));
  const Fed window = feed("streaming_llm(sinks=2)", run_of_surprises(12, rising), 7);
  const Fed same = feed("sirllm(sinks=2)", run_of_surprises(12, rising), 7);
  CHECK((same.kept == window.kept && same.held == window.held));
  CHECK(feed("sirllm", run_of_surprises(12, falling), 7).held.back() == Positions{0, 1, 2, 3, 4, 5, 19});
  // All generated tokens stay, or many leave at once.
  CHECK(feed("sirllm(decode=false)", run_of_surprises(12, rising), 7).held.back().size() == 15);
  CHECK(feed("sirllm(drop=0.5)", run_of_surprises(12, rising), 8).held.front().size() == 5);
}

TEST_CASE("sirllm agrees with its definition", "[sirllm]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int levels = seed % 2 == 0 ? 3 : 1000000;
    const std::size_t round = 1 + seed % 5, sinks = seed % 3, window = seed % 4;
    const Run run =
        random_run({.prompt = 3 + seed % 9, .decode = 12, .n_lanes = 1, .group = 1}, seed, levels);
    const auto score = [round](const Run& of, const Attended& attended, Position position) {
      const auto at = static_cast<std::size_t>(position);
      const auto ended = static_cast<int>((attended.size() - 1) / round) - static_cast<int>(at / round);
      return static_cast<double>(of.surprises[at]) * std::pow(0.5, ended);
    };
    for (std::size_t budget = sinks + std::max<std::size_t>(window, 1); budget < 14; ++budget)
      for (const bool newest : {false, true}) {
        const std::string policy = "sirllm(decay=0.5,round=" + std::to_string(round) +
                                   ",sinks=" + std::to_string(sinks) + ",window=" + std::to_string(window) +
                                   ",tie=" + (newest ? "newest" : "oldest") + ")";
        const Fed slow = feed_slowly({score, sinks, window, newest}, run, budget);
        const Fed fast = feed(policy, run, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
  }
}

}  // namespace kvsim::policy::test::test_eviction_sirllm
