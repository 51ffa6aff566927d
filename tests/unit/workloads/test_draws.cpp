#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "traces/workloads/draws.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload::test_draws {

TEST_CASE("draws depend on seed, kind, prompt, purpose and number") {
  const Draws draws(1, "needle", 0);
  CHECK(draws.uniform("a", 3) == Draws(1, "needle", 0).uniform("a", 3));
  const std::set<double> values{draws.uniform("a"),
                                draws.uniform("a", 1),
                                draws.uniform("b"),
                                Draws(2, "needle", 0).uniform("a"),
                                Draws(1, "copy", 0).uniform("a"),
                                Draws(1, "needle", 1).uniform("a")};
  CHECK(values.size() == 6);
}

TEST_CASE("whole numbers are spread evenly below their bound") {
  const Draws draws(7, "any", 0);
  std::vector<int> seen(5, 0);
  for (std::uint64_t i = 0; i < 5000; ++i) ++seen.at(draws.below(5, "x", i));
  // The expectation is 1000 each, with standard deviation sqrt(5000 * 0.2 * 0.8) = 28.
  for (const int times : seen) CHECK(std::abs(times - 1000) < 150);
}

TEST_CASE("an order is a permutation, and every element is equally likely to be first") {
  std::vector<int> first(4, 0);
  for (std::uint64_t index = 0; index < 2000; ++index) {
    std::vector<std::uint64_t> order = Draws(1, "any", index).order(4, "o");
    ++first.at(order[0]);
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<std::uint64_t>{0, 1, 2, 3});
  }
  // The expectation is 500 each, with standard deviation 19.
  for (const int times : first) CHECK(std::abs(times - 500) < 100);
}

TEST_CASE("a sample has no word twice") {
  const std::vector<std::string> words = Draws(3, "any", 5).sample(key_words(), key_words().size(), "w");
  CHECK(std::set<std::string>(words.begin(), words.end()).size() == key_words().size());
}

TEST_CASE("depths of answers are spread evenly over successive prompts") {
  // Any run of n multiples of the golden ratio leaves no gap above 2.62 / n (three-distance theorem).
  for (const std::uint64_t seed : {1, 2, 3}) {
    for (const std::uint64_t n : {5, 20, 100}) {
      std::vector<double> depths{0.0, 1.0};
      for (std::uint64_t i = 0; i < n; ++i) depths.push_back(Draws(seed, "needle", i).depth());
      std::sort(depths.begin(), depths.end());
      for (std::size_t i = 1; i < depths.size(); ++i)
        CHECK(depths[i] - depths[i - 1] < 2.62 / static_cast<double>(n));
    }
  }
  CHECK(Draws(1, "needle", 0).depth() != Draws(2, "needle", 0).depth());
}

TEST_CASE("words are different, and no key is a value") {
  CHECK(key_words().size() == 177);
  CHECK(value_words().size() == 178);
  CHECK(std::set<std::string>(all_words().begin(), all_words().end()).size() == 355);
}

}  // namespace kvsim::workload::test_draws
