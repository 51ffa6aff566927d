// Selections that look at positions alone.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_patterns {

TEST_CASE("static_pattern: a worked example", "[patterns]") {
  // Query 20: positions 0 and 1, distances 0 to 2, and of the distances 3 to 9 every third: 5 and 8.
  SelectedCache cache(
      {.selection = "static_pattern(sinks=2,local=3,strided=7,stride=3)", .prompt = 20, .group = 2});
  cache.append();
  CHECK(cache.read(0) == std::set<Position>{0, 1, 12, 15, 18, 19, 20});
  CHECK(cache.read(1) == cache.read(0));
  CHECK(cache.index_bits_read() == 0);
  // Query 21 reads others; what is evicted is not replaced.
  cache.append({0});
  CHECK(cache.read(0) == std::set<Position>{1, 13, 16, 19, 20, 21});
  SelectedCache own({.selection = "static_pattern(sinks=0,local=0)", .prompt = 20});
  own.append();
  CHECK(own.read() == std::set<Position>{20});
  SelectedCache dense({.selection = "static_pattern(sinks=0,local=1,dense=6)", .prompt = 20});
  dense.append();
  CHECK(dense.read().size() == 21);
}

TEST_CASE("static_pattern: the patterns of MInference's code", "[patterns]") {
  struct Case {
    std::string preset;
    std::size_t sinks;
    std::vector<std::size_t> distances;  ///< as its code lists them, for a row of 10,000 keys
  };
  const auto every = [](std::size_t first, std::size_t end, std::size_t step) {
    std::vector<std::size_t> out;
    for (std::size_t index = 10000 - first; index < 10000 - end; index += step) out.push_back(9999 - index);
    return out;
  };
  std::vector<std::size_t> both = every(2048, 0, 1), behind = every(6144, 2048, 2);
  both.insert(both.end(), behind.begin(), behind.end());
  for (const Case& of :
       {Case{"minference.a_shape", 128, every(3968, 0, 1)},
        Case{"minference.dilated1", 1024, every(8192, 0, 2)}, Case{"minference.dilated2", 1024, both}}) {
    INFO(of.preset);
    const Composition preset = parse_composition(of.preset, builtin());
    SelectedCache cache({.selection = "static_pattern(" + preset.selection->params.text() + ")",
                         .prompt = 9999,
                         .dim = 1,
                         .length = 10000});
    cache.append();
    std::set<Position> expected{9999};
    for (std::size_t position = 0; position < of.sinks; ++position)
      expected.insert(static_cast<Position>(position));
    for (const std::size_t distance : of.distances) expected.insert(static_cast<Position>(9999 - distance));
    CHECK(cache.read() == expected);
  }
}

TEST_CASE("static_pattern: what it says that it reads", "[patterns]") {
  for (const std::string rule : {"sinks=5,local=7,strided=23,stride=4", "sinks=0,local=0,strided=9,stride=2",
                                 "sinks=3,local=100", "sinks=100,local=0", "sinks=0,local=0"}) {
    INFO(rule);
    for (const std::size_t prompt : {1, 6, 20, 60}) {
      SelectedCache cache({.selection = "static_pattern(" + rule + ")", .prompt = prompt});
      cache.append();
      const ReadCount count = cache.part().reads({}, 5, prompt + 1);
      CHECK(static_cast<double>(cache.read().size()) == count.head_tokens);
      CHECK(count.lane_tokens == count.head_tokens);
    }
  }
}

TEST_CASE("random_by_distance: whole blocks, the same for the queries of a block", "[patterns]") {
  SelectedCache cache({.selection = "random_by_distance(block=4,range=3)",
                       .prompt = 101,
                       .n_lanes = 2,
                       .group = 2,
                       .length = 200});
  std::map<std::size_t, std::vector<std::set<std::size_t>>> drawn;  // per block of the query, of both lanes
  for (int step = 0; step < 90; ++step) {
    cache.append();
    const std::size_t position = cache.position(), own = position / 4;
    std::vector<std::set<std::size_t>> blocks;
    for (const std::size_t head : {0, 2}) {
      std::set<std::size_t> of;
      for (const Position at : cache.read(head)) of.insert(static_cast<std::size_t>(at) / 4);
      CHECK(cache.read(head).size() == (of.size() - 1) * 4 + position % 4 + 1);
      CHECK(of.contains(0));
      CHECK(of.contains(own));
      CHECK(cache.read(head) == cache.read(head + 1));
      blocks.push_back(of);
    }
    const auto known = drawn.emplace(own, blocks).first->second;
    CHECK(known == blocks);
  }
  std::size_t differ = 0;
  for (const auto& [own, blocks] : drawn) differ += blocks[0] != blocks[1] ? 1 : 0;
  CHECK(differ > drawn.size() / 2);
}

TEST_CASE("random_by_distance: the mean over draws is the sum of (N - D) p(D)", "[patterns]") {
  // All rows of 24 blocks of one token, of 400 runs. The share of pairs of blocks, of the N (N + 1) / 2 that
  // are causal, has the expectation E; its deviation is below 0.5 / sqrt(pairs * runs), five of which are
  // allowed.
  constexpr std::size_t kBlocks = 24, kRuns = 400;
  constexpr double kPairs = kBlocks * (kBlocks + 1) / 2;
  for (const std::string law : {"exponential", "hyperbolic"}) {
    double expected = 0, read = 0;
    for (std::size_t distance = 0; distance < kBlocks; ++distance) {
      const double far = static_cast<double>(distance) / 5;
      expected +=
          static_cast<double>(kBlocks - distance) * (law == "exponential" ? std::exp(-far) : 1 / (1 + far));
    }
    for (std::size_t run = 0; run < kRuns; ++run) {
      SelectedCache cache({.selection = "random_by_distance(block=1,range=5,first=false,law=" + law + ")",
                           .prompt = 0,
                           .dim = 1,
                           .length = kBlocks,
                           .run_seed = run});
      for (std::size_t row = 0; row < kBlocks; ++row) {
        cache.append();
        read += static_cast<double>(cache.read().size());
      }
    }
    CHECK(std::abs(read / kRuns - expected) / kPairs < 5 * 0.5 / std::sqrt(kPairs * kRuns));
    // The count of each row adds up to the same.
    const Part part =
        *parse_composition("full+random_by_distance(block=1,range=5,first=false,law=" + law + ")", builtin())
             .selection;
    double counted = 0;
    for (std::size_t stored = 1; stored <= kBlocks; ++stored)
      counted += part.reads({}, 0, stored).head_tokens;
    CHECK(counted == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("random_by_distance: limits", "[patterns]") {
  SelectedCache all({.selection = "random_by_distance(range=1e6,block=16)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  SelectedCache near({.selection = "random_by_distance(range=0.001,block=16)", .prompt = 50});
  near.append();
  CHECK(near.read().size() == 16 + 3);
  SelectedCache dense({.selection = "random_by_distance(range=0.001,block=16,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
}

}  // namespace kvsim::policy::test::test_selection_patterns
