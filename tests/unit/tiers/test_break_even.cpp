#include <catch2/catch.hpp>
#include <limits>

#include "analysis/requests/break_even.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_break_even {
namespace {

/// A token takes 2 s and attends to each token before it for 1/8 s; nothing else takes time.
double hand_seconds(std::uint64_t prompt, std::uint64_t cached) {
  double sum = 0;
  for (std::uint64_t token = cached; token < prompt; ++token) sum += 2 + 0.125 * static_cast<double>(token);
  return sum;
}

BreakEvenGrid hand_grid() {
  BreakEvenGrid grid{.depths = {4, 8, 16}, .block = 4, .suffix = 2};
  grid.cases.push_back(
      {.model = "toy",
       .machine = "hand",
       .host_kv = "fp16",
       .ssd_kv = "int8",
       .links = {.links = {.host = {.bandwidth = 4, .latency = 1}, .ssd = {.bandwidth = 0.5, .latency = 3}},
                 .token_bytes = {.host = 8, .ssd = 2}},
       .prefill = hand_seconds});
  return grid;
}

}  // namespace

TEST_CASE("loading against computing by depth, worked by hand", "[break_even]") {
  const std::vector<BreakEvenRow> rows = break_even_rows(hand_grid());
  REQUIRE(rows.size() == 6);
  // Eight tokens in host memory: 64 bytes at 4 bytes/s behind 1 s; computed in 8 * 2 + (0 + 1 + ... + 7) / 8
  // s.
  const BreakEvenRow& host = rows[1];
  CHECK(host.tier == cost::Tier::host);
  CHECK(host.depth == 8);
  CHECK(host.bytes == 64);
  CHECK(host.load_s == Approx(17));
  CHECK(host.recompute_s == Approx(16 + 28 / 8.0));
  // 64 bytes in the 18.5 s that are left behind the latency.
  REQUIRE(host.even_bandwidth);
  CHECK(*host.even_bandwidth == Approx(64 / 18.5));
  // The last block alone: 32 bytes at 4 bytes/s; four tokens with 4, 5, 6 and 7 before them.
  CHECK(host.block_load_s == Approx(8));
  CHECK(host.block_recompute_s == Approx(8 + 22 / 8.0));
  // The first block: 32 bytes and the latency against 8 + 6 / 8 s: 9 s are more than 8.75 s. Two blocks: 17 s
  // against 19.5 s. Of the last block alone, 9 s against 8.75 s, then 8 s against 10.75 s.
  CHECK(rows[0].load_s == Approx(9));
  CHECK(rows[0].recompute_s == Approx(8.75));
  CHECK(host.even_depth == 8U);
  CHECK(host.block_even_depth == 8U);

  // On the SSD the same tokens take a quarter of the bytes: 16 at half a byte per second, and 3 s before.
  const BreakEvenRow& ssd = rows[4];
  CHECK(ssd.tier == cost::Tier::ssd);
  CHECK(ssd.bytes == 16);
  CHECK(ssd.load_s == Approx(35));
  REQUIRE(ssd.even_bandwidth);
  CHECK(*ssd.even_bandwidth == Approx(16 / 16.5));
  // Sixteen tokens: 67 s of loading against 32 + 15 s. Never at these depths.
  CHECK(rows[5].load_s == Approx(67));
  CHECK(rows[5].recompute_s == Approx(47));
  CHECK_FALSE(ssd.even_depth);
  // The last block: 16 s against 8 + (12 + 13 + 14 + 15) / 8.
  CHECK(rows[5].block_recompute_s == Approx(14.75));
  CHECK_FALSE(ssd.block_even_depth);
}

TEST_CASE("at the bandwidth of equal times, times are equal", "[break_even]") {
  BreakEvenGrid grid = hand_grid();
  for (const cost::Tier tier : cost::kTiers) {
    for (const BreakEvenRow& row : break_even_rows(grid)) {
      if (row.tier != tier) continue;
      REQUIRE(row.even_bandwidth);
      BreakEvenGrid even = grid;
      even.depths = {row.depth};
      even.cases[0].links.links[tier].bandwidth = *row.even_bandwidth;
      for (const BreakEvenRow& again : break_even_rows(even))
        if (again.tier == tier) CHECK(again.load_s == Approx(again.recompute_s));
    }
  }
}

TEST_CASE("limits of breaking even", "[break_even]") {
  BreakEvenGrid grid = hand_grid();
  // Latency alone takes longer than computing.
  grid.cases[0].links.links.host.latency = 1000;
  CHECK_FALSE(break_even_rows(grid).front().even_bandwidth);
  // The host's link alone takes longer than computing: no SSD is fast enough.
  CHECK_FALSE(break_even_rows(grid).back().even_bandwidth);
  grid = hand_grid();
  grid.cases[0].links.links.host = {.bandwidth = std::numeric_limits<double>::max()};
  CHECK(break_even_rows(grid).front().even_depth == 4U);
  // A tier without a link has no rows, a grid without any is refused.
  grid.cases[0].links.links.ssd = {};
  CHECK(break_even_rows(grid).size() == 3);
  grid.cases[0].links.links.host = {};
  CHECK_THROWS_AS(break_even_rows(grid), Error);
  grid = hand_grid();
  grid.suffix = 0;
  CHECK_THROWS_AS(break_even_rows(grid), Error);
  grid = hand_grid();
  grid.depths = {};
  CHECK_THROWS_AS(break_even_rows(grid), Error);
}

TEST_CASE("a prefix that is shorter than a block is its last block", "[break_even]") {
  BreakEvenGrid grid = hand_grid();
  grid.block = 64;
  for (const BreakEvenRow& row : break_even_rows(grid)) {
    CHECK(row.block_load_s == Approx(row.load_s));
    CHECK(row.block_recompute_s == Approx(row.recompute_s));
    CHECK_FALSE(row.even_depth);  // no whole block is so short
  }
}

}  // namespace kvsim::analysis::test_break_even
