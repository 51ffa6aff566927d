#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "tests/unit/prefix/random_requests.hpp"

namespace kvsim::prefix::test_resident_blocks {

TEST_CASE("resident blocks are those that runs and hits count", "[hit_replay]") {
  const requests::RequestTrace trace = random_requests({.seed = 4, .requests = 200, .depth = 8});
  const PrefixTree tree(trace);
  std::vector<Cell> cells;
  for (const char* policy : {"lru", "fifo", "sieve", "opt"})
    for (const std::uint64_t capacity : {3U, 20U, 50U})
      cells.push_back({policy::parse_replacement(policy, policy::builtin()), capacity});
  Workers workers(2);
  std::vector<std::vector<bool>> by_stack, by_cell;
  std::uint64_t gaps = 0;
  for (const bool stack : {true, false}) {
    replay(tree, trace, cells, {.resident = true, .stack_distances = stack}, workers, [&](CellHits&& hits) {
      std::size_t at = 0;
      for (std::size_t r = 0; r < tree.requests(); ++r) {
        const std::size_t blocks = tree.prompt(r).size();
        REQUIRE(at + blocks <= hits.resident.size());
        const auto begin = hits.resident.begin() + static_cast<std::ptrdiff_t>(at),
                   end = begin + static_cast<std::ptrdiff_t>(blocks);
        CHECK(static_cast<std::uint32_t>(std::count(begin, end, true)) == hits.present[r]);
        CHECK(static_cast<std::uint32_t>(std::find(begin, end, false) - begin) == hits.run[r]);
        gaps += hits.present[r] - hits.run[r];
        at += blocks;
      }
      CHECK(at == hits.resident.size());
      (stack ? by_stack : by_cell).push_back(std::move(hits.resident));
    });
  }
  CHECK(by_stack == by_cell);
  CHECK(gaps > 0);
  replay(tree, trace, cells, {}, workers, [&](CellHits&& hits) { CHECK(hits.resident.empty()); });
  CHECK_THROWS_AS(
      replay(tree, trace, cells, {.resident = true, .independent = true}, workers, [](CellHits&&) {}), Error);
}

}  // namespace kvsim::prefix::test_resident_blocks
