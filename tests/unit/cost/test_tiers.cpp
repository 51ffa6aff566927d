// Tiers behind the device: what crosses which link at a step, what a buffer and loads ahead of their layer
// save, and what fits.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/offload.hpp"
#include "tests/unit/cost/toy_model.hpp"

namespace kvsim::cost::test_tiers {
namespace {

/// The step after a prompt of 40 tokens, which finds 41 in each of two layers of one KV head; a token takes 8
/// bytes in a layer.
struct Tiers {
  Model model = toy_model();
  Machine machine{.matrix_rate = 1000, .vector_rate = 1000, .bandwidth = 1000, .memory = 1 << 20};
  std::string policy = "full+quest(read=8,page=2,dense=1)";
  Serving serving{.prompt = 40, .generate = 50};
  std::optional<double> hits{};

  Tiers() {
    machine.host = {.bandwidth = 10, .latency = 1, .operation = 0.5};
    machine.ssd = {.bandwidth = 4, .latency = 2, .operation = 0.25};
    serving.offload.cache = {.host = 0.5, .ssd = 0.25};
  }
  policy::Composition composition() const { return policy::parse_composition(policy, policy::builtin()); }
  Holding holding() const {
    return {{{2, {{.lanes = 1, .after_prompt = 40, .limit = kNoLimit, .hits = hits}}}}};
  }
  PassTime step() const {
    return step_time(model, machine, served_with(serving, composition()), holding(),
                     cost_of(composition(), model, 40, 40), 1);
  }
  Estimate made() const {
    return estimate(model, machine, served_with(serving, composition()), holding(),
                    cost_of(composition(), model, 40, 40), 90);
  }
  /// Seconds of a layer's computing.
  double compute() const {
    Tiers here = *this;
    here.serving.offload = {};
    const PassTime pass = here.step();
    return (pass.seconds() - pass[OpClass::head].seconds) / 2;
  }
};

/// The time of a load or a store: `bytes` of each tier in so many pieces, those of the SSD over both links.
double carried(const Machine& machine, double host, double host_pieces, double ssd, double ssd_pieces) {
  const auto time = [](const Link& link, double bytes, double pieces) {
    return bytes == 0 ? 0 : bytes / link.bandwidth + link.latency + std::max(1.0, pieces) * link.operation;
  };
  return std::max(time(machine.host, host + ssd, host_pieces + ssd_pieces),
                  time(machine.ssd, ssd, ssd_pieces));
}

}  // namespace

TEST_CASE("what crosses the links at a step, worked by hand", "[tiers]") {
  const Tiers tiers;
  const PassTime pass = tiers.step();
  // The first layer reads all 41 tokens, 328 bytes in one piece; the second one 16 in pages of two: 128 bytes
  // in eight pieces of keys and eight of values. Three quarters are not on the device, one is on the SSD.
  CHECK(pass.links.host.bytes == 0.75 * (328 + 128));
  CHECK(pass.links.ssd.bytes == 0.25 * (328 + 128));
  const double first_host = 24.6 + 1 + 0.5, second_host = 9.6 + 1 + 12 * 0.5;
  const double first_ssd = 20.5 + 2 + 0.25, second_ssd = 8 + 2 + 4 * 0.25;
  CHECK(pass.links.host.seconds == Approx(first_host + second_host));
  CHECK(pass.links.ssd.seconds == Approx(first_ssd + second_ssd));
  // Both links at the same time: the host link is the longer one in both layers.
  CHECK(pass.loading == Approx(first_host + second_host));
  // A token of 8 bytes leaves: 2 of them to the SSD, in 0.5 + 2 + 0.25 s, while the layer computes.
  REQUIRE(tiers.compute() < 2.75);
  CHECK(pass.transfer == Approx(pass.loading + 2 * (2.75 - tiers.compute())));
  CHECK(pass.asked == 0.75 * (328 + 128));
  CHECK(pass.found == 0);
  CHECK(pass.hit_rate() == 0.0);
  CHECK(pass.hidden() == 0.0);
}

TEST_CASE("a buffer keeps what two steps in a row read from the links, worked by hand", "[tiers]") {
  Tiers tiers;
  tiers.serving.offload.buffer = 4;
  tiers.serving.offload.hit_rate = 0.5;
  const PassTime pass = tiers.step();
  // Of 30.75 tokens that the first layer reads of the tiers and of 12 of the second, the buffer has 4.
  CHECK(pass.found == Approx(8 * (4 + 4)));
  CHECK(pass.links.host.bytes == Approx(8 * (30.75 - 4 + 12 - 4)));
  CHECK(pass.links.ssd.bytes == Approx(8 * (30.75 - 4 + 12 - 4) / 3));
  // With room for more it has half of the 12, and what reads everything finds all that there is room for.
  tiers.serving.offload.buffer = 10;
  CHECK(tiers.step().found == Approx(8 * (10 + 6)));
  tiers.serving.offload.buffer = 1000;
  CHECK(tiers.step().found == Approx(8 * (30.75 + 6)));
  // The room is the device's: at the end 90 tokens, of which 67 are away and 22 on the device of 8 bytes
  // each.
  Tiers none;
  const std::uint64_t room = tiers.made().at_end.keys_values - none.made().at_end.keys_values;
  CHECK(room == 2 * 67 * 8);
  tiers.serving.offload.buffer = 4;
  CHECK(tiers.made().at_end.keys_values - none.made().at_end.keys_values == 2 * 4 * 8);
  // What a replay counted takes the place of what is given.
  tiers.serving.offload.buffer = 1000;
  tiers.hits = 0.25;
  CHECK(tiers.step().found == Approx(8 * 0.25 * (30.75 + 12)));
}

TEST_CASE("where everything is found, nothing is loaded", "[tiers]") {
  Tiers tiers;
  tiers.serving.offload.buffer = 41;
  tiers.serving.offload.hit_rate = 1;
  const PassTime pass = tiers.step();
  CHECK(pass.links.host.bytes == 0);
  CHECK(pass.links.ssd.bytes == 0);
  CHECK(pass.loading == 0);
  CHECK(pass.hit_rate() == 1.0);
  CHECK_FALSE(pass.hidden().has_value());
}

TEST_CASE("loads one layer ahead, worked by hand", "[tiers]") {
  Tiers tiers;
  tiers.machine.host.operation = tiers.machine.ssd.operation = 0;
  double compute = tiers.compute();
  const double first = 24.6 + 1, second = 9.6 + 1;
  // A quarter is guessed wrongly: the second layer's 16 tokens are loaded ahead, and a quarter once more.
  tiers.serving.offload.prefetch = 0.75;
  const double late = 0.25 * 8 + 2;  // of the SSD: the host link takes 3.4
  PassTime pass = tiers.step();
  CHECK(pass.links.host.bytes == Approx(0.75 * (328 + 1.25 * 128)));
  CHECK(pass.loading == Approx(first + second + late));
  CHECK(pass.transfer == Approx(first - compute + second - compute + late));
  // The first layer is not guessed, as none is before it.
  tiers.policy = "full+quest(read=8,page=2,dense=0)";
  compute = tiers.compute();
  REQUIRE(compute < 2.5);
  pass = tiers.step();
  CHECK(pass.transfer == Approx(2.5 + second - compute + second - compute + late));
  // All guessed right, and what is read as a whole: the longest of loads, stores and computing.
  tiers.policy = "full";
  for (const double bandwidth : {10.0, 1e9}) {
    tiers.machine.host.bandwidth = tiers.machine.ssd.bandwidth = bandwidth;
    tiers.machine.host.latency = tiers.machine.ssd.latency = 0;
    const double load = 0.75 * 328 / bandwidth;
    const double block = std::max(load, tiers.compute());
    pass = tiers.step();
    CHECK(pass.transfer == Approx(2 * (block - tiers.compute())).margin(1e-9));
    CHECK(pass.hidden().value() == Approx(1 - (block - tiers.compute()) / load).margin(1e-9));
  }
}

TEST_CASE("steps with tiers agree with a plain account of each layer", "[tiers]") {
  std::uint64_t state = 7;
  const auto draw = [&](std::uint64_t most) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % (most + 1);
  };
  const auto share = [&] { return static_cast<double>(draw(8)) / 8; };
  for (int round = 0; round < 200; ++round) {
    Tiers tiers;
    const auto dense = draw(2), read = 2 + draw(30);
    tiers.policy =
        "full+recent_tokens(sinks=0,read=" + std::to_string(read) + ",dense=" + std::to_string(dense) + ")";
    Offload& offload = tiers.serving.offload;
    offload.cache.host = share() / 2;
    offload.cache.ssd = share() / 2;
    offload.buffer = draw(20);
    offload.hit_rate = share();
    if (draw(1) == 1) offload.prefetch = share();
    const auto host = offload.cache.host, ssd = offload.cache.ssd, away = host + ssd;
    if (away == 0) continue;
    tiers.machine.matrix_rate = tiers.machine.vector_rate = static_cast<double>(20 + draw(2000));
    const double compute = tiers.compute();
    const double store = carried(tiers.machine, host * 8, host, ssd * 8, ssd);
    double transfer = 0, bytes = 0;
    for (std::uint64_t layer = 0; layer < 2; ++layer) {
      const bool all = layer < dense;
      const double tokens = all ? 41 : static_cast<double>(read);
      const double hits =
          std::min((all ? 1 : offload.hit_rate) * away * tokens, static_cast<double>(offload.buffer));
      const double left = 1 - hits / (away * tokens);
      // A run of successive tokens: one piece of a whole layer, else one of keys and one of values.
      const double pieces = all ? 1 : 2;
      const auto load = [&](double part) {
        bytes += part * left * away * tokens * 8;
        return carried(tiers.machine, part * left * host * tokens * 8, part * left * host * pieces,
                       part * left * ssd * tokens * 8, part * left * ssd * pieces);
      };
      double block = 0;
      if (!offload.prefetch)
        block = load(1) + std::max(store, compute);
      else if (all)
        block = std::max({load(1), store, compute});
      else if (layer == 0)
        block = std::max(store, compute) + load(1);
      else
        block = std::max({load(1), store, compute}) + load(1 - *offload.prefetch);
      transfer += block - compute;
    }
    INFO(round << ": " << tiers.policy);
    const PassTime pass = tiers.step();
    CHECK(pass.links.host.bytes == Approx(bytes).margin(1e-9));
    CHECK(pass.transfer == Approx(transfer).margin(1e-9));
  }
}

TEST_CASE("without offloading nothing of tiers changes a number", "[tiers]") {
  Tiers plain;
  plain.serving.offload = {};
  Tiers with = plain;
  with.serving.offload.buffer = 7;
  with.serving.offload.hit_rate = 0.5;
  with.serving.offload.prefetch = 0.5;
  with.machine.host.operation = 3;
  CHECK(with.step().seconds() == plain.step().seconds());
  CHECK(with.made().at_end.total() == plain.made().at_end.total());
  CHECK(plain.step().loading == 0);
  CHECK_FALSE(plain.step().hit_rate().has_value());
}

TEST_CASE("reading the index is a part of attention by its bytes", "[tiers]") {
  Tiers tiers;
  tiers.serving.offload = {};
  tiers.machine.ceilings.norm = 1000;
  tiers.policy = "full";
  CHECK(tiers.step().choosing == 0);
  // 21 pages with two bounds of two numbers, 168 bytes; 16 tokens of 8 bytes, and 16 bytes of both query
  // heads.
  tiers.policy = "full+quest(read=8,page=2,dense=0)";
  const PassTime pass = tiers.step();
  CHECK(pass.choosing == Approx(pass[OpClass::attention].seconds * 168 / (168 + 128 + 16)));
}

TEST_CASE("weights and cache of each tier are stored there, and must fit", "[tiers]") {
  Tiers tiers;
  tiers.policy = "full";
  tiers.serving.offload.weights = {.host = 0.25, .ssd = 0.5};
  const std::uint64_t matrices = 2 * 2 * tiers.model.block_matrix_parameters(), cache = 2 * 90 * 8;
  Estimate made = tiers.made();
  CHECK(made.peak(Tier::host) == matrices / 4 + cache / 2);
  CHECK(made.peak(Tier::ssd) == matrices / 2 + cache / 4);
  CHECK(made.fits);
  tiers.machine.ssd_memory = made.peak(Tier::ssd);
  CHECK(tiers.made().fits);
  --tiers.machine.ssd_memory;
  CHECK_FALSE(tiers.made().fits);
  CHECK(largest_batch(tiers.model, tiers.machine, tiers.serving, tiers.holding(), {}, tiers.machine.memory) ==
        0);
}

TEST_CASE("an SSD beside a machine that is the host has one link", "[tiers]") {
  Tiers tiers;
  tiers.machine.host = {};
  tiers.serving.offload.cache = {.host = 0, .ssd = 0.25};
  const PassTime pass = tiers.step();
  CHECK(pass.links.host.bytes == 0);
  CHECK(pass.loading == pass.links.ssd.seconds);
  tiers.machine.ssd = {};
  CHECK_THROWS_WITH(tiers.step(), Catch::Contains("no link to an SSD"));
  tiers.serving.offload.cache = {.host = 0.75, .ssd = 0.5};
  CHECK_THROWS_WITH(tiers.step(), Catch::Contains("more than all of it"));
}

TEST_CASE("the block of loads ahead: a group counts its longest, groups add up", "[tiers]") {
  CHECK(ahead_block(5, 0, 1, 3) == prefill_block(5, 1, 3));
  CHECK(ahead_block(2, 4, 1, 3) == 3 + 4);
  CHECK(ahead_block(0, 4, 1, 3) == step_block(4, 1, 3));
}

}  // namespace kvsim::cost::test_tiers
