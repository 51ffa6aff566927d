#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "sim/base/error.hpp"
#include "sim/requests/serving/allocators/allocator.hpp"
#include "sim/requests/serving/engine.hpp"
#include "tests/unit/serving/made_requests.hpp"

namespace kvsim::serving::test_allocators {
namespace {

constexpr AllocatorKind kKinds[] = {AllocatorKind::static_max, AllocatorKind::paged,
                                    AllocatorKind::page_groups, AllocatorKind::buddy};

using Runs = std::vector<Run>;

TEST_CASE("Static: whole pieces, however short the sequence", "[serving]") {
  const auto memory =
      make_allocator(AllocatorKind::static_max, {.capacity = 250, .places = 8, .max_tokens = 100});
  CHECK(memory->enter(0, 3));
  CHECK(memory->enter(1, 100));
  CHECK_FALSE(memory->enter(2, 1));  // 50 tokens are left, which is no piece
  CHECK(memory->use() == MemoryUse{103, 200, 0});
  CHECK_FALSE(memory->grow(1, 101));
  CHECK(memory->grow(0, 4));
  CHECK(memory->runs(0, 4) == Runs{{0, 4}});
  memory->leave(0);
  CHECK(memory->enter(2, 1));
  CHECK(memory->runs(2, 1) == Runs{{0, 1}});
  CHECK(memory->operations().maps == 3);
}

TEST_CASE("Paged: blocks from a queue, in pieces after the first sequences have left", "[serving]") {
  const auto memory = make_allocator(AllocatorKind::paged, {.capacity = 27, .places = 8, .block = 4});
  CHECK(memory->enter(0, 9));  // blocks 0, 1, 2
  CHECK(memory->enter(1, 4));  // block 3
  CHECK(memory->use() == MemoryUse{13, 16, 0});
  CHECK(memory->grow(1, 5));  // block 4
  CHECK(memory->runs(0, 9) == Runs{{0, 9}});
  CHECK(memory->runs(1, 5) == Runs{{12, 5}});
  memory->leave(0);  // returns 2, 1, 0 behind block 5, the last of six
  CHECK(memory->enter(2, 13));
  CHECK(memory->runs(2, 13) == Runs{{20, 4}, {8, 4}, {4, 4}, {0, 1}});
  CHECK_FALSE(memory->grow(1, 9));
}

TEST_CASE("Page groups: a place keeps its pages until others need them", "[serving]") {
  const auto memory =
      make_allocator(AllocatorKind::page_groups, {.capacity = 60, .places = 3, .page_group = 10});
  CHECK(memory->enter(0, 25));  // slot 0: 3 groups
  CHECK(memory->enter(1, 10));  // slot 1: 1 group
  memory->leave(0);
  memory->leave(1);
  CHECK(memory->use() == MemoryUse{0, 0, 40});
  // The first free slot has three; slot 1 has enough and fewer, so nothing is mapped.
  CHECK(memory->enter(2, 5));
  CHECK(memory->operations().maps == 4);
  CHECK(memory->enter(0, 15));  // slot 0 has its 3 groups still
  CHECK(memory->use() == MemoryUse{20, 40, 0});
  CHECK(memory->grow(2, 30));  // two more, of the six
  CHECK(memory->operations().maps == 6);
  CHECK(memory->grow(2, 31));  // unmaps the one that slot 0 does not need
  CHECK(memory->operations().unmaps == 1);
  CHECK(memory->room(0) == 20);
  CHECK_FALSE(memory->grow(2, 41));
  memory->leave(0);
  CHECK(memory->use() == MemoryUse{31, 40, 20});
  CHECK(memory->grow(2, 41));  // unmaps both of slot 0 and maps one of them
  CHECK(memory->operations().unmaps == 3);
  CHECK(memory->use() == MemoryUse{41, 50, 0});
  CHECK(memory->runs(2, 41).size() == 1);
}

TEST_CASE("Buddy: larger groups than needed, split off where another needs them", "[serving]") {
  const auto memory = make_allocator(AllocatorKind::buddy, {.capacity = 16, .places = 4, .block = 1});
  CHECK(memory->enter(0, 5));  // a group of 8
  CHECK(memory->room(0) == 8);
  CHECK(memory->enter(1, 3));  // a group of 4
  CHECK(memory->runs(1, 3) == Runs{{8, 3}});
  CHECK(memory->enter(2, 4));
  CHECK(memory->use() == MemoryUse{12, 16, 0});
  CHECK(
      memory->enter(3, 2));  // nothing is free: the first has three too many, of which two beside each other
  CHECK(memory->room(0) == 6);
  CHECK(memory->runs(3, 2) == Runs{{6, 2}});
  CHECK(memory->grow(3, 4));  // one each of the first two
  CHECK(memory->runs(3, 4) == Runs{{6, 2}, {5, 1}, {11, 1}});
  CHECK(memory->use() == MemoryUse{16, 16, 0});
  CHECK_FALSE(memory->grow(3, 5));
  memory->leave(0);
  memory->leave(1);
  memory->leave(3);
  CHECK(memory->enter(0, 8));
  CHECK(memory->runs(0, 8) == Runs{{0, 8}});  // buddies have merged
}

TEST_CASE("No two sequences have the same memory, and what they have is enough", "[serving]") {
  for (const AllocatorKind kind : kKinds) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(allocator_name(kind), seed);
      constexpr std::uint64_t kCapacity = 331;
      constexpr Place kPlaces = 7;
      const auto memory = make_allocator(
          kind, {.capacity = kCapacity, .places = kPlaces, .block = 3, .max_tokens = 60, .page_group = 10});
      std::map<Place, std::uint64_t> tokens;
      std::uint64_t refused = 0;
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const auto draw = [&](std::uint64_t what, std::uint64_t n) {
          return pick(combine({seed, i, what}), n);
        };
        const auto place = static_cast<Place>(draw(0, kPlaces));
        const std::uint64_t piece = kind == AllocatorKind::static_max    ? 60
                                    : kind == AllocatorKind::page_groups ? 10
                                                                         : 3;
        // What is not in use, counted anew: only static pieces are kept from others although nobody uses
        // them.
        std::uint64_t pieces = 0;
        for (const auto& [other, held] : tokens)
          pieces += kind == AllocatorKind::static_max ? 1 : (held + piece - 1) / piece;
        const std::uint64_t left = kCapacity / piece - pieces;
        if (!tokens.contains(place)) {
          const std::uint64_t asked = 1 + draw(1, 70);
          const bool fits = kind == AllocatorKind::static_max ? left > 0 && asked <= 60
                                                              : (asked + piece - 1) / piece <= left;
          REQUIRE(memory->enter(place, asked) == fits);
          if (fits) tokens[place] = asked;
          refused += fits ? 0 : 1;
        } else if (draw(2, 3) == 0) {
          memory->leave(place);
          tokens.erase(place);
        } else {
          const std::uint64_t now = tokens[place], asked = now + draw(3, 20);
          const std::uint64_t has = (now + piece - 1) / piece;
          const bool fits =
              kind == AllocatorKind::static_max ? asked <= 60 : (asked + piece - 1) / piece <= has + left;
          REQUIRE(memory->grow(place, asked) == fits);
          if (fits) tokens[place] = asked;
          refused += fits ? 0 : 1;
        }
        if (i % 8 != 0) continue;
        std::uint64_t used = 0, reserved = 0;
        std::set<std::uint64_t> taken;
        for (const auto& [other, held] : tokens) {
          used += held;
          REQUIRE(memory->room(other) >= held);
          reserved += memory->room(other);
          std::uint64_t listed = 0;
          bool alone = true;
          for (const Run& run : memory->runs(other, held)) {
            listed += run.length;
            for (std::uint64_t at = run.begin; at < run.begin + run.length; ++at) {
              alone = alone && taken.insert(at).second;
              // Runs of page groups are of virtual memory.
              alone = alone && (kind == AllocatorKind::page_groups || at < kCapacity);
            }
          }
          REQUIRE(listed == held);
          REQUIRE(alone);
        }
        REQUIRE(memory->use().used == used);
        REQUIRE(memory->use().reserved == reserved);
        REQUIRE(reserved + memory->use().kept <= kCapacity);
      }
      CHECK(refused > 20);
    }
  }
}

TEST_CASE("Larger pieces lie in fewer runs, and their swaps cost fewer copies", "[serving]") {
  // FastSwitch: 1000 tokens of Llama-3-8B in blocks of 16, PCIe at 32 GB/s, 10 us a copy.
  const SwapSettings swap{
      .link = {.bandwidth = 32e9, .latency = 10e-6}, .token_bytes = 131072, .run_copies = 64};
  Runs blocks;
  for (std::uint64_t i = 0; i < 62; ++i) blocks.push_back({32 * i, 16});
  blocks.push_back({4000, 8});
  CHECK(blocks.size() * swap.run_copies == 4032);
  CHECK(1e3 * copy_seconds(swap, blocks) == Approx(44.4).margin(0.05));
  // One run: 64 copies, of keys and of values of each layer.
  CHECK(1e3 * copy_seconds(swap, {{0, 1000}}) == Approx(4.096 + 0.64));

  std::map<AllocatorKind, std::uint64_t> runs;
  for (const AllocatorKind kind : {AllocatorKind::paged, AllocatorKind::buddy}) {
    const auto memory = make_allocator(kind, {.capacity = 16 * 1024, .places = 16, .block = 16});
    for (std::uint64_t i = 0; i < 400; ++i) {
      const auto place = static_cast<Place>(i % 16);
      if (i >= 16) {
        runs[kind] += memory->runs(place, 100).size();
        memory->leave(place);
      }
      REQUIRE(memory->enter(place, 100 + pick(combine({i, 1}), 300)));
    }
  }
  CHECK(runs[AllocatorKind::buddy] * 2 < runs[AllocatorKind::paged]);
}

TEST_CASE("Memories of no piece are refused", "[serving]") {
  for (const AllocatorKind kind : kKinds)
    CHECK_THROWS_AS(
        make_allocator(kind, {.capacity = 2, .places = 1, .block = 3, .max_tokens = 3, .page_group = 3}),
        Error);
  CHECK_THROWS_WITH(make_allocator(AllocatorKind::paged, {.capacity = 10}), Catch::Contains("no sequence"));
}

}  // namespace
}  // namespace kvsim::serving::test_allocators
