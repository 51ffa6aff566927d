// Checks the driver's bookkeeping by hand, and that it reports policies that break their contract.
#include <catch2/catch.hpp>
#include <functional>

#include "sim/base/error.hpp"
#include "sim/feed/unit_driver.hpp"

namespace kvsim::sim::test_unit_driver {
namespace {

using policy::Position;
using Slots = std::vector<std::size_t>;
using Positions = std::vector<Position>;

/// Evicts the given slots whenever the cache is full, and records what it is shown.
class Scripted final : public policy::Decoder {
 public:
  explicit Scripted(Slots victims) : victims_(std::move(victims)) {}
  void evict(const policy::Arrival& arrival, Slots& victims) override {
    seen.emplace_back(arrival.slots.begin(), arrival.slots.end());
    if (arrival.full) victims = victims_;
  }
  void close_slots(std::span<const std::size_t> slots) override { closed.assign(slots.begin(), slots.end()); }
  void observe(const policy::Step& step) override { own_slots.push_back(step.own_slot); }

  std::vector<Positions> seen;
  Slots own_slots, closed;

 private:
  Slots victims_;
};

/// Keeps the given positions of the prompt.
class Fixed final : public policy::Eviction {
 public:
  Fixed(Positions keep, std::optional<Slots> victims)
      : keep_(std::move(keep)), victims_(std::move(victims)) {}
  void finish_prompt(const policy::Prompt&) override {}
  policy::Start start(std::size_t) const override {
    return {keep_, victims_ ? std::make_unique<Scripted>(*victims_) : nullptr};
  }

 private:
  Positions keep_;
  std::optional<Slots> victims_;
};

constexpr std::size_t kPrompt = 5, kLength = 9;

struct Driven {
  explicit Driven(Positions keep, std::optional<Slots> victims = {}, std::size_t chunk = 0)
      : driver(part, std::make_unique<Fixed>(std::move(keep), std::move(victims)),
               {.layer = 3, .n_layers = 4, .first_kv_head = 1, .chunk = chunk}, kPrompt, kLength) {}

  void start(std::size_t budget) { driver.start(0, budget, kLength, false); }
  void admit(Position position) {
    driver.admit(cache(), {.position = position, .keys = {}, .values = {}, .queries = {}}, 1);
  }
  void ask_again(Position position) {
    driver.ask_again(cache(), {.position = position, .keys = {}, .values = {}, .queries = {}});
  }
  UnitDriver<IndexStore>::Cache& cache() { return driver.caches().front(); }
  Positions slots() { return {cache().residents.slots().begin(), cache().residents.slots().end()}; }

  policy::PolicySpec spec{.name = "fixed"};
  policy::Part part{&spec, {}};
  UnitDriver<IndexStore> driver;
};

/// Returns the driver's message about `work`; empty if it accepts everything.
std::string complaint(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bug);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a cache fills up, then every token takes the slot that the decoder names") {
  Driven unit({0, 3}, Slots{1});
  unit.start(3);
  unit.admit(5);
  CHECK(unit.slots() == Positions{0, 3, 5});
  CHECK(unit.cache().own_slot == 2);
  unit.admit(6);  // full: slot 1 is evicted
  CHECK(unit.slots() == Positions{0, 6, 5});
  CHECK(unit.cache().own_slot == 1);
  CHECK(unit.cache().attends(6));
  CHECK_FALSE(unit.cache().attends(3));
  unit.driver.attended(unit.cache(), {.position = 6, .keys = {}, .values = {}, .queries = {}}, {});
  const auto& decoder = dynamic_cast<const Scripted&>(*unit.cache().decoder);
  CHECK(decoder.seen == std::vector<Positions>{{0, 3}, {0, 3, 5}});
  CHECK(decoder.own_slots == Slots{1});
}

TEST_CASE("all tokens leave where another chunk begins") {
  // Of a prompt of 5 tokens in chunks of 3 a layer holds tokens 3 and 4.
  for (const bool decides : {false, true}) {
    Driven unit({0, 1}, decides ? std::optional(Slots{0}) : std::nullopt, 3);
    unit.start(3);
    CHECK(unit.slots() == Positions{3, 4});
    unit.admit(5);
    CHECK(unit.slots() == Positions{3, 4, 5});
    unit.admit(6);
    CHECK(unit.slots() == Positions{6});
    CHECK(unit.cache().left_behind == 3);
    unit.admit(7);
    CHECK(unit.slots() == Positions{6, 7});
    if (decides) CHECK(dynamic_cast<const Scripted&>(*unit.cache().decoder).closed == Slots{0, 1, 2});
  }
}

TEST_CASE("without a decoder, generated tokens are appended") {
  Driven unit({1});
  unit.start(1);
  unit.admit(5);
  unit.admit(6);
  CHECK(unit.slots() == Positions{1, 5, 6});
}

TEST_CASE("a repeated step of the last prompt token attends its own key and evicts nothing") {
  Driven evicted({0, 3}, Slots{0});
  evicted.start(2);
  evicted.ask_again(4);
  CHECK(Positions(evicted.cache().attended.begin(), evicted.cache().attended.end()) == Positions{0, 3, 4});
  CHECK_FALSE(evicted.cache().own_is_resident);
  CHECK(evicted.cache().attends(4));
  CHECK(evicted.slots() == Positions{0, 3});
  evicted.admit(5);
  CHECK_FALSE(evicted.cache().attends(4));

  Driven kept({3, 4}, Slots{0});
  kept.start(2);
  kept.ask_again(4);
  CHECK(kept.cache().own_is_resident);
  CHECK(Positions(kept.cache().attended.begin(), kept.cache().attended.end()) == Positions{3, 4});
}

TEST_CASE("an answer that breaks the contract is a bug that names the policy, layer and head") {
  const auto start = [](Positions keep, std::size_t budget) {
    return complaint([&] { Driven(std::move(keep), Slots{0}).start(budget); });
  };
  CHECK(start({0, 1, 2}, 3).empty());
  using Catch::Contains;
  CHECK_THAT(start({0, 1, 2}, 2), Contains("keeps 3 prompt positions of at most 2") &&
                                      Contains("policy 'fixed', layer 3, KV head 1"));
  CHECK_THAT(start({0, 1, 2, 3, 4, 4}, 9), Contains("keeps 6 prompt positions of at most 5"));
  CHECK_THAT(start({1, 1}, 3), Contains("entry 1 is 1"));
  CHECK_THAT(start({2, 1}, 3), Contains("entry 1 is 1"));
  CHECK_THAT(start({0, 5}, 3), Contains("entry 1 is 5"));
  CHECK_THAT(start({-1}, 3), Contains("entry 0 is -1"));

  const auto evict = [](Slots victims) {
    return complaint([&] {
      Driven unit({0, 1, 2}, std::move(victims));
      unit.start(3);
      unit.admit(5);
    });
  };
  CHECK(evict({2}).empty());
  CHECK(evict({2, 0}).empty());
  CHECK_THAT(evict({}), Contains("evicts nothing from a full cache at position 5"));
  CHECK_THAT(evict({3}), Contains("evicts slot 3 of 3"));
  CHECK_THAT(evict({1, 1}), Contains("evicts a slot twice"));
}

}  // namespace kvsim::sim::test_unit_driver
