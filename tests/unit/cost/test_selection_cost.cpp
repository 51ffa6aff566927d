// What selections cost: a step reads what they choose and of their index, and the index lies beside the
// cache.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "tests/unit/cost/toy_model.hpp"

namespace kvsim::cost::test_selection_cost {
namespace {

struct Priced {
  OpTime attention;
  Memory memory;
  double transfer = 0;
};

/// The step after a prompt of 40 tokens, which finds 41 in each of two layers of one KV head.
Priced priced(const std::string& text, double offloaded = 0) {
  const policy::Composition policy = policy::parse_composition(text, policy::builtin());
  const Model model = toy_model();
  Machine machine;
  machine.name = "toy";
  machine.matrix_rate = 1000;
  machine.vector_rate = 50;
  machine.bandwidth = 100;
  machine.memory = 1'000'000;
  machine.host = {.bandwidth = 1, .latency = 0};
  Serving serving = served_with({.prompt = 40, .generate = 50}, policy);
  serving.offload.cache.host = offloaded;
  const Holding holding{{{2, {{1, 40, kNoLimit}}}}};
  const policy::Cost cost = cost_of(policy, model, 40, 40);
  const PassTime pass = step_time(model, machine, serving, holding, cost, 1);
  return {pass[OpClass::attention], memory_at(model, machine, serving, holding, cost, 1), pass.transfer};
}

}  // namespace

TEST_CASE("a step reads what a selection chooses and its index, worked by hand", "[selection_cost]") {
  // A token takes 8 bytes in a layer; two query heads read and write 4 numbers of 2 bytes each.
  const Priced all = priced("full");
  CHECK(all.attention.bytes == 2 * (41 * 8 + 16));
  CHECK(all.attention.flops == 2 * (2 * 4 * 2 * 41));
  // The second layer: 21 pages with two bounds of 2 numbers; each head reads 4 pages of 2 tokens, both 16
  // tokens.
  const Priced some = priced("full+quest(read=8,page=2,dense=1)");
  const double index = 21 * 2 * 2 * 2;
  CHECK(some.attention.bytes == (41 * 8 + 16) + (16 * 8 + index + 16));
  CHECK(some.attention.flops == 2 * 4 * 2 * 41 + (2 * 4 * 2 * 8 + 2 * index));
  CHECK(some.memory.metadata == all.memory.metadata + static_cast<std::uint64_t>(index));
  CHECK(some.memory.keys_values == all.memory.keys_values);
  // Heads that agree read less together; there is no index.
  const Priced recent = priced("full+recent_tokens(read=8)");
  CHECK(recent.attention.bytes == 2 * (8 * 8 + 16));
  CHECK(recent.memory.metadata == all.memory.metadata);
}

TEST_CASE("of a cache in host memory only what is chosen crosses the link", "[selection_cost]") {
  const Priced all = priced("full", 1), some = priced("full+recent_tokens(read=8)", 1);
  CHECK(some.transfer < all.transfer / 2);
  CHECK(some.transfer > 0);
}

TEST_CASE("a selection of everything costs as much as none", "[selection_cost]") {
  CHECK(priced("full+top_tokens(read=100%)").attention.bytes == priced("full").attention.bytes);
  CHECK(priced("full+top_tokens(read=100%)").attention.seconds == priced("full").attention.seconds);
}

}  // namespace kvsim::cost::test_selection_cost
