// full, window and streaming_llm: policies that depend on positions only.
#include <catch2/catch.hpp>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_recency {

using Positions = std::vector<Position>;

namespace {

double by_age(const Run&, const Attended&, Position position) {
  return position;
}

}  // namespace

TEST_CASE("full keeps all tokens whatever the budget") {
  const Run run = blank_run({.prompt = 5, .decode = 2});
  for (const std::size_t budget : {1U, 5U, 100U}) {
    const Fed fed = feed("full", run, budget);
    CHECK(fed.kept == Positions{0, 1, 2, 3, 4});
    CHECK(fed.held.back() == Positions{0, 1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("window keeps the last positions, worked by hand") {
  // Prompt 0..4, budget 3: of the prompt 2 3 4 are kept; each generated token pushes the oldest out.
  const Fed fed = feed("window", blank_run({.prompt = 5, .decode = 3}), 3);
  CHECK(fed.kept == Positions{2, 3, 4});
  CHECK(fed.held == std::vector<Positions>{{3, 4, 5}, {4, 5, 6}, {5, 6, 7}});
}

TEST_CASE("streaming_llm keeps sinks and the last positions, worked by hand") {
  // Budget 4 = 2 sinks and 2 recent.
  const Fed fed = feed("streaming_llm(sinks=2)", blank_run({.prompt = 6, .decode = 3}), 4);
  CHECK(fed.kept == Positions{0, 1, 4, 5});
  CHECK(fed.held == std::vector<Positions>{{0, 1, 5, 6}, {0, 1, 6, 7}, {0, 1, 7, 8}});
}

TEST_CASE("tokens generated before the sinks are full become sinks") {
  // Prompt 0, four sinks, budget 6: nothing is evicted before position 6 arrives.
  const Fed fed = feed("streaming_llm", blank_run({.prompt = 1, .decode = 7}), 6);
  CHECK(fed.held.back() == Positions{0, 1, 2, 3, 6, 7});
}

TEST_CASE("the window is streaming_llm without sinks") {
  for (const std::size_t budget : {1U, 2U, 7U, 8U, 9U, 30U}) {
    const Run run = blank_run({.prompt = 8, .decode = 9});
    CHECK(feed("window", run, budget).held == feed("streaming_llm(sinks=0)", run, budget).held);
  }
}

TEST_CASE("recency agrees with dropping the oldest unprotected position") {
  for (std::size_t prompt = 1; prompt < 12; ++prompt) {
    for (const std::size_t sinks : {0U, 1U, 3U}) {
      for (std::size_t budget = sinks + 1; budget < 15; ++budget) {
        const Run run = blank_run({.prompt = prompt, .decode = 7});
        const Fed fast = feed("streaming_llm(sinks=" + std::to_string(sinks) + ")", run, budget);
        const Fed slow = feed_slowly({.score = by_age, .sinks = sinks}, run, budget);
        CAPTURE(prompt, sinks, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("a long prefix and a short window, worked by hand") {
  // Budget 5 = the first 3 and the last 2; generated tokens pass through the window.
  const Fed fed = feed("streaming_llm(sinks=0,window=2)", blank_run({.prompt = 8, .decode = 2}), 5);
  CHECK(fed.kept == Positions{0, 1, 2, 6, 7});
  CHECK(fed.held == std::vector<Positions>{{0, 1, 2, 7, 8}, {0, 1, 2, 8, 9}});
}

TEST_CASE("a prefix of B - w and a window of w are sinks under another name") {
  for (std::size_t prompt = 1; prompt < 12; ++prompt) {
    for (std::size_t budget = 3; budget < 15; ++budget) {
      const Run run = blank_run({.prompt = prompt, .decode = 7});
      const Fed factory = feed("streaming_llm(sinks=0,window=3)", run, budget);
      const Fed sinks = feed("streaming_llm(sinks=" + std::to_string(budget - 3) + ")", run, budget);
      CHECK(factory.kept == sinks.kept);
      CHECK(factory.held == sinks.held);
    }
  }
}

TEST_CASE("KVCache-Factory's streaming_llm appends generated tokens") {
  const Fed fed = feed("streaming_llm.factory", blank_run({.prompt = 50, .decode = 3}), 40);
  CHECK(fed.kept.size() == 40);
  CHECK(fed.kept[7] == 7);
  CHECK(fed.kept[8] == 18);
  CHECK(fed.held.back().size() == 43);
}

}  // namespace kvsim::policy::test::test_eviction_recency
