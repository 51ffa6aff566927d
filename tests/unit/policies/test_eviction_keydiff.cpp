#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_eviction_keydiff {

using Positions = std::vector<Position>;

namespace {

Run run_of_keys(std::size_t prompt, const std::vector<std::vector<float>>& keys) {
  Run run = blank_run({.prompt = prompt, .decode = keys.size() - prompt, .n_lanes = 1, .group = 1});
  for (std::size_t j = 0; j < keys.size(); ++j)
    std::copy(keys[j].begin(), keys[j].end(), &run.keys[0][j * 3]);
  return run;
}

std::vector<double> key_of(const Run& run, Position j) {
  const float* const key = &run.keys[0][static_cast<std::size_t>(j) * 3];
  return {key[0], key[1], key[2]};
}

double length(const std::vector<double>& x) {
  return std::sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
}

/// Returns minus the cosine between the key and the mean of the resident unit keys.
double score(const Run& run, const std::set<Position>& held, Position j) {
  std::vector<double> mean(3);
  for (const Position i : held) {
    const std::vector<double> key = key_of(run, i);
    for (std::size_t c = 0; c < 3; ++c) mean[c] += key[c] / length(key) / static_cast<double>(held.size());
  }
  const std::vector<double> key = key_of(run, j);
  return -(key[0] * mean[0] + key[1] * mean[1] + key[2] * mean[2]) / length(key) / length(mean);
}

/// `block` tokens at a time join the resident ones, all are ranked together, and as many as fit are kept.
std::set<Position> in_blocks(const Run& run, std::size_t budget, std::size_t block) {
  std::set<Position> held;
  for (std::size_t first = 0; first < run.prompt; first += block) {
    for (std::size_t j = first; j < std::min(run.prompt, first + block); ++j)
      held.insert(static_cast<Position>(j));
    std::vector<std::pair<double, Position>> ranked;
    for (const Position j : held) ranked.emplace_back(score(run, held, j), j);
    std::sort(ranked.begin(), ranked.end());
    for (std::size_t i = 0; held.size() > budget; ++i) held.erase(ranked[i].second);
  }
  return held;
}

}  // namespace

TEST_CASE("keydiff evicts keys that point where the others do, worked by hand") {
  // Three keys along x, two along y: their mean is (3, 2) / 5, cosines 3 and 2 over the root of 13. Lengths
  // do not matter. Budget 3: both of y and the newest of x.
  const Run run =
      run_of_keys(5, {{1, 0, 0}, {0, 2, 0}, {5, 0, 0}, {0, 1, 0}, {3, 0, 0}, {0, 0, 1}, {0, 3, 0}});
  // y y x are held: mean (1, 2), so y is evicted first, the older; then y x z point apart equally: the
  // oldest.
  const Fed fed = feed("keydiff", run, 3);
  CHECK(fed.kept == Positions{1, 3, 4});
  CHECK(fed.held == std::vector<Positions>{{3, 4, 5}, {4, 5, 6}});
  CHECK(feed("keydiff.kvpress", run, 3).held.back() == Positions{1, 3, 4, 5, 6});
}

TEST_CASE("keydiff agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Run run = random_run({.prompt = 2 + seed % 15, .decode = 12, .n_lanes = 1, .group = 1}, seed);
    for (std::size_t budget = 3; budget < 16; ++budget) {  // two are equally far from their mean
      std::set<Position> held = in_blocks(run, budget, run.prompt);
      const Fed fed = feed("keydiff", run, budget);
      CAPTURE(seed, budget);
      CHECK(fed.kept == Positions(held.begin(), held.end()));
      for (std::size_t query = run.prompt; query < run.length(); ++query) {
        if (held.size() == budget) {
          const std::set<Position> all = held;
          held.erase(*std::min_element(all.begin(), all.end(), [&](Position a, Position b) {
            return score(run, all, a) < score(run, all, b);
          }));
        }
        held.insert(static_cast<Position>(query));
        CHECK(fed.held[query - run.prompt] == Positions(held.begin(), held.end()));
      }
    }
  }
}

TEST_CASE("a streamed prompt is ranked in blocks of one token") {
  // A token attends and then all B + 1 are ranked: kvpress's blocks of 1. The last eviction is still to come.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 12, .decode = 1, .n_lanes = 1, .group = 1}, seed);
    for (std::size_t budget = 3; budget < 12; ++budget) {
      const std::set<Position> blocks = in_blocks(run, budget, 1);
      const Positions held = feed("keydiff(prompt=stream,phase=post)", run, budget).held[0];
      CHECK(Positions(held.begin(), held.end() - 1) == Positions(blocks.begin(), blocks.end()));
    }
  }
}

TEST_CASE("keys of length zero point nowhere") {
  const Run run = run_of_keys(3, {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}});
  CHECK(feed("keydiff", run, 2).kept == Positions{0, 2});
}

TEST_CASE("keydiff cannot stream a prompt when generated tokens are only appended") {
  const Run run = random_run({.prompt = 4, .decode = 1, .n_lanes = 1, .group = 1}, 1);
  for (const std::string policy : {"keydiff", "tova", "h2o"})
    CHECK_THROWS_WITH(feed(policy + "(prompt=stream,decode=false)", run, 3),
                      Catch::Contains("would never evict"));
}

}  // namespace kvsim::policy::test::test_eviction_keydiff
