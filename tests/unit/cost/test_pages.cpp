#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/storage.hpp"
#include "tests/support/page_use.hpp"
#include "tests/validation/fragmentation.hpp"

namespace kvsim::cost::test_pages {
namespace {

std::uint64_t below(std::uint64_t n, std::uint64_t seed, std::uint64_t draw) {
  return static_cast<std::uint64_t>(uniform01(combine({seed, draw})) * static_cast<double>(n));
}

/// Counts slot by slot and step by step the state of each slot of the reserved block.
Fragmentation slow_fragmentation(Allocator allocator, const std::vector<Request>& requests,
                                 std::uint64_t max_tokens, std::uint64_t page) {
  std::uint64_t used = 0, reserved = 0, internal = 0;
  for (const Request& request : requests) {
    const std::uint64_t last = request.prompt + request.generated;
    for (std::uint64_t held = request.prompt + 1; held <= last; ++held) {
      std::uint64_t block = 0;
      if (allocator == Allocator::longest) block = max_tokens;
      if (allocator == Allocator::exact) block = last;
      if (allocator == Allocator::buddy)
        for (block = 1; block < last;) block *= 2;
      if (allocator == Allocator::paged)
        while (block < held) block += page;
      for (std::uint64_t slot = 0; slot < block; ++slot)
        ++(slot < held ? used : slot < last ? reserved : internal);
    }
  }
  const auto all = static_cast<double>(used + reserved + internal);
  return {static_cast<double>(used) / all, static_cast<double>(reserved) / all,
          static_cast<double>(internal) / all};
}

}  // namespace

TEST_CASE("a page is in use while one of its tokens is resident", "[cost][pages]") {
  // Positions 0, 1, 5, 9 right after the prompt; 1 is evicted after step 2, 12 joins at step 3.
  const std::vector<sim::ResidentInterval> lane{{0, 0, 9}, {1, 0, 3}, {5, 0, 9}, {9, 0, 1}, {12, 3, 9}};
  const PageUse start = page_use(lane, 0, 4);
  CHECK(start.slots == 4);
  CHECK(start.pages == 3);
  const PageUse later = page_use(lane, 3, 4);
  CHECK(later.slots == 3);  // 0, 5, 12
  CHECK(later.pages == 3);
  CHECK(page_use(lane, 3, 1).pages == 3);
  CHECK(page_use(lane, 3, 100).pages == 1);
  CHECK(page_use(lane, 9, 4).pages == 0);
  CHECK(page_use({}, 0, 4).slots == 0);
  CHECK_THROWS_AS(page_use(lane, 0, 0), Error);
}

TEST_CASE("evicting at random frees few pages", "[cost][pages]") {
  // 0.75^16, 0.9^16, 0.95^16.
  CHECK(freed_page_share(0.75, 16) == Approx(0.01002).margin(1e-5));
  CHECK(freed_page_share(0.9, 16) == Approx(0.18530).margin(1e-5));
  CHECK(freed_page_share(0.95, 16) == Approx(0.44013).margin(1e-5));
  CHECK(freed_page_share(0.3, 1) == Approx(0.3));
  CHECK(freed_page_share(0, 16) == 0);
  CHECK(freed_page_share(1, 16) == 1);
  CHECK_THROWS_AS(freed_page_share(1.1, 16), Error);
  CHECK_THROWS_AS(freed_page_share(0.5, 0), Error);
  // A draw of 4000 pages of 16 at 0.9 has that share within three standard deviations: sqrt(.185*.815/4000).
  std::vector<sim::ResidentInterval> lane;
  for (std::uint64_t i = 0; i < 64'000; ++i)
    if (uniform01(combine({7, i})) >= 0.9) lane.push_back({static_cast<std::int32_t>(i), 0, 1});
  const double freed = 1 - static_cast<double>(page_use(lane, 0, 16).pages) / 4000;
  CHECK(freed == Approx(0.1853).margin(0.0185));
}

TEST_CASE("the last page wastes half a page on average", "[cost][pages]") {
  CHECK(pages_of(0, 16) == 0);
  CHECK(pages_of(16, 16) == 1);
  CHECK(pages_of(17, 16) == 2);
  // One whole page of steps from an empty cache: 1 .. 16 of 16 slots, 136 of 256 used.
  const std::vector<Request> one{{0, 16}};
  const Fragmentation paged = fragmentation(Allocator::paged, one, 0, 16);
  CHECK(paged.used == Approx(136.0 / 256));
  CHECK(paged.internal == 0);
  // 1 + 1 tokens use two of 16 slots; the other fourteen are never used.
  const std::vector<Request> two{{1, 1}};
  CHECK(fragmentation(Allocator::paged, two, 0, 16).internal == Approx(14.0 / 16));
  // Mean 338, waste 7.5 / 345.5 = 2.2 %.
  const std::vector<Request> chat{{161 + 8, 352}};
  CHECK(1 - fragmentation(Allocator::paged, chat, 2048, 16).used == Approx(0.0215).margin(0.001));
}

TEST_CASE("blocks waste the slots of growth and rounding", "[cost][pages]") {
  // Two decode steps hold 4 and 5 of 5 tokens.
  const std::vector<Request> one{{3, 2}};
  const Fragmentation exact = fragmentation(Allocator::exact, one, 0, 0);
  CHECK(exact.used == Approx(0.9));
  CHECK(exact.reserved == Approx(0.1));
  CHECK(exact.internal == 0);
  const Fragmentation buddy = fragmentation(Allocator::buddy, one, 0, 0);
  CHECK(buddy.used == Approx(9.0 / 16));
  CHECK(buddy.reserved == Approx(1.0 / 16));
  CHECK(buddy.internal == Approx(6.0 / 16));
  const Fragmentation longest = fragmentation(Allocator::longest, one, 10, 0);
  CHECK(longest.used == Approx(9.0 / 20));
  CHECK(longest.reserved == Approx(1.0 / 20));
  CHECK(longest.internal == Approx(10.0 / 20));
  CHECK_THROWS_WITH(fragmentation(Allocator::longest, one, 4, 0), Catch::Contains("3 + 2"));
  CHECK_THROWS_AS(fragmentation(Allocator::paged, one, 4, 0), Error);
  CHECK_THROWS_AS(fragmentation(Allocator::exact, {}, 4, 0), Error);
}

TEST_CASE("shares of memory agree with counting slot by slot", "[cost][pages]") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<Request> requests(1 + below(4, seed, 0));
    for (std::size_t i = 0; i < requests.size(); ++i)
      requests[i] = {below(40, seed, 1 + 2 * i), 1 + below(40, seed, 2 + 2 * i)};
    const std::uint64_t page = 1 + below(20, seed, 99);
    for (const Allocator allocator :
         {Allocator::longest, Allocator::buddy, Allocator::exact, Allocator::paged}) {
      CAPTURE(seed, page, static_cast<int>(allocator));
      const Fragmentation fast = fragmentation(allocator, requests, 90, page);
      const Fragmentation slow = slow_fragmentation(allocator, requests, 90, page);
      CHECK(fast.used == Approx(slow.used));
      CHECK(fast.reserved == Approx(slow.reserved).margin(1e-12));
      CHECK(fast.internal == Approx(slow.internal).margin(1e-12));
    }
  }
}

TEST_CASE("tokens that fill a page of virtual memory", "[cost][pages]") {
  // vAttention: Yi-6B with 4 KV heads of 128 in fp16 and 2 MiB pages, 2048 tokens; Llama-3-8B, 64 KiB, 32.
  CHECK(tokens_per_page(2 << 20, 4, 128, 2) == 2048);
  CHECK(tokens_per_page(64 << 10, 8, 128, 2) == 32);
  CHECK(tokens_per_page(2048, 8, 128, 2) == 1);
  CHECK_THROWS_AS(tokens_per_page(2047, 8, 128, 2), Error);
  CHECK_THROWS_AS(tokens_per_page(2048, 0, 128, 2), Error);
  CHECK(power_of_two(5) == 8);
  CHECK(power_of_two(8) == 8);
  CHECK_THROWS_AS(power_of_two(~std::uint64_t{0}), Error);
}

}  // namespace kvsim::cost::test_pages
