#include <catch2/catch.hpp>

#include "sim/feed/index_store.hpp"
#include "sim/feed/selected_reads.hpp"

namespace kvsim::sim::test_index_store {
namespace {

Token token(policy::Position position) {
  return {.position = position, .keys = {}, .values = {}, .queries = {}};
}

}  // namespace

TEST_CASE("an index store records when each position is resident") {
  const policy::Position kept[] = {2, 5};
  IndexStore store(kept, 3, 100, true);
  const std::size_t first[] = {0}, two[] = {2, 1};
  CHECK(store.join({}, token(10), 1) == 2);     // step 1: 2 5 10
  CHECK(store.join(first, token(11), 2) == 0);  // step 2: 11 5 10
  store.begin_block();
  CHECK(store.join(two, token(12), 3) == 1);  // step 3: 11 12, without 5 and 10
  CHECK(std::vector(store.slots().begin(), store.slots().end()) == std::vector<policy::Position>{11, 12});
  CHECK(store.contains(11));
  CHECK_FALSE(store.contains(5));
  std::vector<std::vector<std::uint32_t>> intervals;
  for (const ResidentInterval& r : store.history(4))
    intervals.push_back({static_cast<std::uint32_t>(r.position), r.first, r.last});
  CHECK(intervals ==
        std::vector<std::vector<std::uint32_t>>{{2, 0, 2}, {5, 0, 3}, {10, 1, 3}, {11, 2, 4}, {12, 3, 4}});
}

TEST_CASE("intervals that end while the prompt streams are not recorded") {
  IndexStore store({}, 1, 100, true);
  const std::size_t first[] = {0};
  store.join({}, token(0), 0);
  store.join(first, token(1), 0);
  store.forget_ended();
  store.join(first, token(2), 1);
  const std::vector<ResidentInterval> history = store.history(2);
  REQUIRE(history.size() == 2);
  CHECK((history[0].position == 1 && history[0].first == 0 && history[0].last == 1));
  CHECK((history[1].position == 2 && history[1].first == 1 && history[1].last == 2));
}

TEST_CASE("attention on slots is gathered from full rows, head by head") {
  // Two heads over positions 0 .. 5; slots hold 4, 0, 5, 1, 2.
  const std::vector<float> rows = {.1F, .2F, .3F, 0, .15F, .25F, .5F, 0, 0, .25F, .125F, .125F};
  const std::vector<policy::Position> slots = {4, 0, 5, 1, 2};
  SlotGather gather;
  const SlotAttention got = gather({rows.data(), 2, 6, 6}, slots, false);
  REQUIRE((got.attention.rows == 2 && got.attention.cols == 5));
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      CHECK(got.attention.row(head)[slot] == rows[head * 6 + static_cast<std::size_t>(slots[slot])]);
  CHECK(got.mass[0] == Approx(1.0));
  CHECK(got.mass[1] == Approx(0.75));
}

}  // namespace kvsim::sim::test_index_store
