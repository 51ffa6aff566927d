#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "sim/requests/prefix/block_cache.hpp"

namespace kvsim::prefix::test_taken_room {
namespace {

policy::Part part(const std::string& text) {
  return policy::parse_replacement(text, policy::builtin());
}

TEST_CASE("Room that running requests take, by hand", "[prefix]") {
  const std::vector<Node> parents{kRoot, 0, 1, kRoot, kRoot};
  const std::vector<std::uint32_t> depths{0, 1, 2, 0, 0};
  BlockCache cache(part("lru"), {.blocks = 5, .capacity = 4, .parents = parents, .depths = depths});
  // A request takes three blocks and computes two of them.
  REQUIRE(cache.take(3));
  cache.computed(0);
  cache.computed(1);
  CHECK(cache.taken() == 1);
  CHECK(cache.size() == 2);
  CHECK(cache.pinned() == 2);
  CHECK(cache.leading_run(std::vector<Node>{0, 1, 2}) == 2);
  // Another computes the first one, too: the copy is free again.
  REQUIRE(cache.take(1));
  cache.computed(0);
  CHECK(cache.taken() == 1);
  CHECK_FALSE(cache.take(2));  // one of four is free, and nothing can leave
  // The first request ends: block 1 was used longest ago, block 0 is still held.
  cache.request({.path = std::vector<Node>{0, 1}});
  cache.unpin(std::vector<Node>{0, 1});
  cache.give_back(1);
  CHECK(cache.pinned() == 1);
  REQUIRE(cache.take(3));
  CHECK_FALSE(cache.resident(1));
  CHECK(cache.resident(0));
  CHECK(cache.evictions() == 1);
  CHECK_FALSE(cache.take(1));
  cache.request({.number = 1, .path = std::vector<Node>{0}});
  cache.unpin(std::vector<Node>{0});
  REQUIRE(cache.take(1));
  CHECK(cache.size() == 0);
}

TEST_CASE("Any policy gives up what is not held, down to nothing", "[prefix]") {
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (!spec.as<policy::ReplacementRule>() || spec.name == "opt") continue;
    CAPTURE(spec.name);
    constexpr std::size_t kBlocks = 40, kCapacity = 12;
    const std::vector<Node> parents(kBlocks, kRoot);
    const std::vector<std::uint32_t> depths(kBlocks, 0);
    BlockCache cache(part(spec.name),
                     {.blocks = kBlocks, .capacity = kCapacity, .parents = parents, .depths = depths});
    std::size_t taken = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const auto draw = [&](std::uint64_t what, double n) {
        return static_cast<std::size_t>(uniform01(combine({i, what})) * n);
      };
      const std::vector<Node> path{static_cast<Node>(draw(1, kBlocks))};
      const bool held = cache.pin(path) == 1;
      const std::size_t free = kCapacity - taken - cache.pinned(), asked = draw(2, 5);
      REQUIRE(cache.take(asked) == (asked <= free));
      if (asked <= free) taken += asked;
      if (held) {
        REQUIRE(cache.resident(path.front()));
        cache.unpin(path);
      }
      if (draw(3, 3) == 0) {
        cache.give_back(taken);
        taken = 0;
      }
      if (taken < kCapacity) cache.request({.number = i, .time_s = static_cast<double>(i), .path = path});
      REQUIRE(cache.size() + taken <= kCapacity);
      REQUIRE(cache.taken() == taken);
    }
    REQUIRE(cache.take(kCapacity - taken));
    CHECK(cache.size() == 0);
  }
}

}  // namespace
}  // namespace kvsim::prefix::test_taken_room
