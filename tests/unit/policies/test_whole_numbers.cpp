// Rounding of budgets, the only place where a fraction of a token could get lost.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test_whole_numbers {

using Numbers = std::vector<std::size_t>;
using Reals = std::vector<double>;

TEST_CASE("largest remainder, worked by hand") {
  // Floors 2, 0, 1 leave two of five: to .9 and .6.
  CHECK(largest_remainder(Reals{2.5, 0.9, 1.6}, 5) == Numbers{2, 1, 2});
  // Equal remainders: the earlier.
  CHECK(largest_remainder(Reals{1.5, 1.5}, 3) == Numbers{2, 1});
  CHECK(largest_remainder(Reals{3, 0}, 3) == Numbers{3, 0});
  // A sum a hair above a whole number, as 3 * 0.7 + 0.9 is: no token appears or vanishes.
  CHECK(largest_remainder(Reals{3.0000000000000004, 1}, 3) == Numbers{3, 0});
}

TEST_CASE("sharing out, worked by hand") {
  CHECK(shared_out(Reals{1, 2, 1}, 8, 10) == Numbers{2, 4, 2});
  // 6 of 8 would go to the second, which takes 4; the other two go to the rest in turn.
  CHECK(shared_out(Reals{1, 6, 1}, 8, 4) == Numbers{2, 4, 2});
  CHECK(shared_out(Reals{0, 0, 0}, 7, 3) == Numbers{3, 2, 2});
  CHECK(shared_out(Reals{0, 1}, 6, 3) == Numbers{3, 3});
  CHECK_THROWS_AS(shared_out(Reals{1, 1}, 7, 3), Error);
  CHECK_THROWS_AS(shared_out(Reals{-1, 1}, 1, 3), Error);
  CHECK_THROWS_AS(shared_out(Reals{NAN, 1}, 1, 3), Error);
}

TEST_CASE("sharing out spends everything and stays near the ideal where nothing is capped") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Reals weights(1 + seed % 9);
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = std::pow(uniform01(combine({seed, i})), seed % 5 == 0 ? 40 : 1);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::size_t total = seed % 97, most = total / weights.size() + 1 + seed % 50;
    const Numbers out = shared_out(weights, total, most);
    CHECK(std::accumulate(out.begin(), out.end(), std::size_t{0}) == total);
    bool capped = false;
    for (const double w : weights) capped |= w / sum * static_cast<double>(total) > static_cast<double>(most);
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i] <= most);
      if (!capped && most > total)
        CHECK(std::abs(static_cast<double>(out[i]) - weights[i] / sum * static_cast<double>(total)) < 1);
    }
  }
}

TEST_CASE("halves go to the even number") {
  for (const auto& [x, rounded] : std::vector<std::pair<double, std::size_t>>{
           {0.5, 0}, {1.5, 2}, {2.5, 2}, {3.5, 4}, {2.4999, 2}, {2.5001, 3}, {7, 7}, {0, 0}, {-3, 0}})
    CHECK(half_even(x) == rounded);
}

TEST_CASE("the largest of several lists are counted as if taken one by one") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<Reals> lists(1 + seed % 4);
    for (std::size_t i = 0; i < lists.size(); ++i)
      for (std::size_t j = 0; j < (seed + i) % 7; ++j)
        lists[i].push_back(std::floor(uniform01(combine({seed, i, j})) * (seed % 2 == 0 ? 3 : 1e6)) - 1);
    const std::size_t most = seed % 6;
    std::vector<Reals> sorted = lists;
    for (Reals& list : sorted) std::sort(list.begin(), list.end(), std::greater<>());
    Numbers slow(lists.size());
    for (std::size_t n = 0; n < 20; ++n) {
      CHECK(counts_of_largest(lists, n, most) == slow);
      int best = -1;
      for (std::size_t i = 0; i < sorted.size(); ++i)
        if (slow[i] < std::min(most, sorted[i].size()) &&
            (best < 0 || sorted[i][slow[i]] >
                             sorted[static_cast<std::size_t>(best)][slow[static_cast<std::size_t>(best)]]))
          best = static_cast<int>(i);
      if (best >= 0) ++slow[static_cast<std::size_t>(best)];
    }
  }
  CHECK_THROWS_AS(counts_of_largest(std::vector<Reals>{{1, NAN}}, 1, 2), Error);
}

}  // namespace kvsim::policy::test_whole_numbers
