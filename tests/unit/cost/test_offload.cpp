#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/offload.hpp"
#include "tests/validation/flexgen_plan.hpp"

namespace kvsim::cost::test_offload {
namespace {

/// A layer of 1,000 parameters, two bytes of hidden state per token, eight of keys and values.
Model toy_model() {
  Model model;
  model.layers = 3;
  model.hidden = 1;
  model.gated_mlp = false;
  model.query_heads = model.kv_heads = 1;
  model.head_dim = model.value_dim = 2;
  model.ffn = (1000 - 8) / 2;
  return model;
}

OffloadRates toy_rates() {
  return {.host_to_device = 100,
          .device_to_host = 10,
          .cache_to_host = 20,
          .disk_read = 5,
          .disk_write = 4,
          .prompt_to_disk = 2,
          .prefill_rate = 1e6,
          .decode_rate = 1e6,
          .prefill_attention_rate = 1e6,
          .decode_attention_rate = 1e6,
          .host_rate = 1000};
}

}  // namespace

TEST_CASE("Transfers take their bytes and their copies", "[offload]") {
  const Link link{.bandwidth = 1000, .latency = 0.5};
  CHECK(transfer_time(link, 2000, 3) == 3.5);
  CHECK(swap_time(link, 2000, 900) == 2 * (2 + 3 * 0.5));  // the third copy is of 200 bytes
  CHECK(swap_time(link, 0, 900) == 0);
  CHECK_THROWS_AS(swap_time(link, 2000, 0), Error);
  CHECK_THROWS_AS(transfer_time({}, 2000, 1), Error);
}

TEST_CASE("Small copies make swapping slow but not recomputing", "[offload]") {
  // Llama-3-8B, 8,192 tokens, 16 per page: K and V of a layer and page are 32 KiB, 32,768 copies in all.
  const std::uint64_t bytes = 8192ULL * 131072;
  const Link link{.bandwidth = 25e9, .latency = 6e-6};
  CHECK(swap_time(link, bytes, bytes) / 2 == Approx(0.043).margin(0.0005));
  CHECK(swap_time(link, bytes, 32 * 1024) / 2 == Approx(0.043 + 32768 * 6e-6).margin(0.0005));
  const Model model = find_model("llama-3-8b");
  Serving serving;
  serving.prompt = 8192;
  const double recompute = pass_time(model, find_machine("a100-80-sxm"), serving, 8192, 0, true).seconds();
  CHECK(swap_time(link, bytes, 32 * 1024) < recompute);
  CHECK(swap_time(link, bytes, 32 * 1024 / 4) > recompute);  // pages of four tokens
}

TEST_CASE("FlexGen's schedule overlaps copies and compute, by hand", "[offload]") {
  OffloadPlan plan{.prompt = 10, .generate = 4, .batch = 2, .cached_tokens = 12};
  const Model model = toy_model();
  REQUIRE(model.block_matrix_parameters() == 1000);
  // All on the device: 10 tokens of 2 sequences, 2 * 1000 FLOP each, and 100 pairs of 2 * 4 for each
  // sequence.
  const double on_device = (10 * 2 * 2000 + 100 * 2 * 8) / 1e6;
  CHECK(offload_time(model, toy_rates(), plan).prefill == Approx(3 * on_device));
  CHECK(offload_time(model, toy_rates(), plan).decode == Approx(3 * 3 * (2 * 2000 + 12 * 2 * 8) / 1e6));

  // Weights half on the host, half on disk: their 2,000 bytes cross the link, 1,000 of them come from disk.
  plan.weights_device = 0;
  plan.weights_host = 0.5;
  CHECK(offload_time(model, toy_rates(), plan).prefill == Approx(3 * (2000 / 100.0 + 1000 / 5.0)));
  CHECK(offload_time(model, toy_rates(), plan).decode == Approx(3 * 3 * (2000 / 100.0 + 1000 / 5.0)));
  // The cache goes to the host, a quarter of it to the disk: 10 tokens of 2 sequences, 8 bytes each.
  plan.weights_device = 1;
  plan.weights_host = 0;
  plan.cache_device = 0;
  plan.cache_host = 0.75;
  CHECK(offload_time(model, toy_rates(), plan).prefill == Approx(3 * (160 / 20.0 + 40 / 2.0)));
  // Reading a quarter of 12 tokens from disk takes longer than attending to all of them on the host.
  CHECK(offload_time(model, toy_rates(), plan).decode == Approx(3 * 3 * (0.25 * 12 * 16 / 5.0)));
  plan.cache_host = 1;
  CHECK(offload_time(model, toy_rates(), plan).decode ==
        Approx(3 * 3 * (2 * 2000 / 1e6 + 12 * 2 * 8 / 1000.0)));
  // Hidden states through the host: two bytes of two sequences, in and out.
  plan = {.prompt = 10,
          .generate = 4,
          .batch = 2,
          .cached_tokens = 12,
          .activations_device = 0,
          .activations_host = 1};
  CHECK(offload_time(model, toy_rates(), plan).prefill == Approx(3 * 40 / 10.0));
  CHECK(offload_time(model, toy_rates(), plan).decode == Approx(3 * 3 * (4 / 100.0 + 4 / 10.0)));

  OffloadRates no_disk = toy_rates();
  no_disk.disk_read = 0;
  CHECK(offload_time(model, no_disk, plan).decode > 0);
  plan.weights_device = 0.2;
  plan.weights_host = 0.8;  // adds up to one, but for rounding
  CHECK(offload_time(model, no_disk, plan).decode > 0);
  plan.weights_host = 0.7;
  CHECK_THROWS_WITH(offload_time(model, no_disk, plan), Catch::Contains("disk read"));
  plan.weights_host = 0.9;
  CHECK_THROWS_WITH(offload_time(model, no_disk, plan), Catch::Contains("weights"));
  plan.generate = 0;
  CHECK_THROWS_WITH(offload_time(model, no_disk, plan), Catch::Contains("generate"));
}

TEST_CASE("OPT-30B offloaded from a T4 is as fast as FlexGen and H2O measured", "[offload]") {
  const Model model = find_model("opt-30b");
  struct Run {
    std::uint64_t generate, batch, device_batch;
    double weights_on_device;
    std::uint64_t heavy_hitters;  ///< tokens that H2O keeps of 512; 0: all
    double measured, error;       ///< tokens/s; the error with the schedule's constants
  };
  for (const Run& run : {Run{32, 144, 48, 0.2, 0, 7.32, -0.025}, Run{32, 728, 52, 0, 102, 12.66, 0.04},
                         Run{512, 416, 52, 0, 204, 18.83, 0.064}, Run{1024, 264, 44, 0, 306, 13.88, 0.088},
                         Run{32, 768, 48, 0.2, 102, 14.34, -0.065}, Run{512, 400, 40, 0.2, 204, 18.18, 0.135},
                         Run{1024, 280, 40, 0.2, 306, 14.80, 0.083}}) {
    CAPTURE(run.generate, run.batch);
    OffloadPlan plan{.prompt = 512, .generate = run.generate, .batch = run.batch};
    plan.cached_tokens = run.heavy_hitters == 0 ? 512 + run.generate / 2 : run.heavy_hitters;
    plan.weights_device = run.weights_on_device;
    plan.weights_host = 1 - run.weights_on_device;
    plan.cache_device = plan.activations_device = 0;
    plan.cache_host = plan.activations_host = 1;
    const OffloadTime time = offload_time(model, flexgen_t4_rates(run.device_batch), plan);
    CHECK(time.tokens_per_second / run.measured - 1 == Approx(run.error).margin(0.004));
  }
  CHECK(flexgen_t4_rates(64).host_rate == 12.3e9);
  CHECK(flexgen_t4_rates(128).host_rate == 12.3e9);
  CHECK_THROWS_AS(flexgen_t4_rates(0), Error);
}

TEST_CASE("OPT-175B from disk is as slow as its disk", "[offload]") {
  OffloadPlan plan{.prompt = 512, .generate = 32, .batch = 256, .cached_tokens = 528};
  plan.weights_device = 0;
  plan.weights_host = 0.5;
  plan.cache_device = plan.cache_host = 0;
  plan.activations_device = 0;
  plan.activations_host = 1;
  OffloadRates rates = flexgen_t4_rates(64);
  CHECK(offload_time(find_model("opt-175b"), rates, plan).tokens_per_second == Approx(0.154).epsilon(0.03));
  rates.disk_read = 2.6 * 1024 * 1024 * 1024;  // measured: 0.69
  CHECK(offload_time(find_model("opt-175b"), rates, plan).tokens_per_second == Approx(0.69).epsilon(0.03));
}

namespace {

/// Keeps all tokens; offloaded bytes cross a link of 100 bytes a second, with half a second per copy.
struct Served {
  Model model = toy_model();
  Machine machine{.matrix_rate = 1e6, .vector_rate = 1e6, .bandwidth = 1e6, .memory = 1 << 20};
  Serving serving{};
  policy::Cost cost{};

  Served() {
    model.vocab = 10;
    machine.host = {.bandwidth = 100, .latency = 0.5};
    serving.prompt = 10;
    serving.generate = 4;
    serving.batch = 2;
  }
  Holding full() const { return {{{model.layers, {{model.kv_heads, serving.prompt, kNoLimit}}}}}; }
  Estimate made() const { return estimate(model, machine, serving, full(), cost, 14); }
};

Served llama() {
  Served served;
  served.model = find_model("llama-3-8b");
  served.machine = find_machine("a100-80-sxm");
  served.serving.prompt = 8192;
  served.serving.generate = 64;
  return served;
}

}  // namespace

TEST_CASE("Offloaded bytes are stored and moved, by hand", "[offload]") {
  Served served;
  const Estimate plain = served.made();
  CHECK(plain.peak(Tier::host) == 0);
  CHECK(plain.time.prefill.transfer == 0);
  served.serving.offload = {.weights = {0.5}, .cache = {0.25}};
  const Estimate moved = served.made();

  // Half of three layers of 2,000 bytes is offloaded; buffers for two layers' 1,000 bytes stay.
  CHECK(plain.at_end.weights - moved.at_end.weights == 3000 - 2000);
  // 14 tokens of 8 bytes in each of three layers: a quarter, 28 bytes, is offloaded; buffers for two layers
  // stay.
  CHECK(moved.at_end.keys_values == 2 * (3 * 84 + 2 * 28));
  CHECK(moved.at_end.away.host == 3000 + 2 * 3 * 28);
  // The last layer, computing 10 tokens, is whole; the one before it is being copied: 20 of its 80 bytes.
  CHECK(moved.prefill.keys_values == 2 * (60 + 60 + 80 + 20));
  CHECK(moved.prefill.away.host == 3000 + 2 * 2 * 20);
  CHECK(moved.peak(Tier::host) == moved.at_end.away.host);

  // 1,000 bytes of weights arrive and 0.25 * 10 * 16 bytes of cache leave while a layer computes.
  const auto block = [](const PassTime& pass) { return (pass.seconds() - pass[OpClass::head].seconds) / 3; };
  REQUIRE(block(plain.time.prefill) < 10.5);
  CHECK(moved.time.prefill.transfer == Approx(3 * (10.5 - block(plain.time.prefill))));
  // The second token attends to 11: 0.25 * 11 * 16 bytes arrive with the weights. Then 0.25 * 16 bytes leave,
  // in 0.54 s.
  REQUIRE(block(plain.time.first_step) < 0.54);
  CHECK(moved.time.first_step.transfer == Approx(3 * (10.5 + 0.94 + 0.54 - block(plain.time.first_step))));
  CHECK(moved.time.first_token == Approx(plain.time.first_token + moved.time.prefill.transfer));
  CHECK(moved.time.mean_step.seconds() ==
        Approx(plain.time.mean_step.seconds() + moved.time.mean_step.transfer));
}

TEST_CASE("A chunk loads weights and the cache before it", "[offload]") {
  Served served;
  served.machine.host.latency = 0;
  served.serving.chunk = 5;
  const auto blocks = [&] {
    const PassTime pass = served.made().time.prefill;
    return pass.seconds() - pass[OpClass::head].seconds;
  };
  // Either chunk takes as long as loading its layers: 1,000 bytes of weights each.
  served.serving.offload.weights.host = 0.5;
  CHECK(blocks() == Approx(3 * (10 + 10)));
  // The second chunk loads a quarter of the 5 tokens before it too, 16 bytes each for the batch.
  served.serving.offload.cache.host = 0.25;
  CHECK(blocks() == Approx(3 * (10 + 10 + 0.2)));
}

TEST_CASE("Offloading agrees with FlexGen's schedule where the link limits", "[offload]") {
  Served served = llama();
  served.machine.host = {.bandwidth = 1e6, .latency = 0};
  served.serving.offload.weights.host = 0.3;
  OffloadRates rates{.host_to_device = 1e6};
  rates.prefill_rate = rates.decode_rate = 1e30;
  rates.prefill_attention_rate = rates.decode_attention_rate = 1e30;
  const OffloadPlan plan{.prompt = 8192,
                         .generate = 64,
                         .batch = 2,
                         .cached_tokens = 8224,
                         .weights_device = 0.7,
                         .weights_host = 0.3};
  const OffloadTime theirs = offload_time(served.model, rates, plan);
  const Latency ours = served.made().time;
  CHECK(ours.prefill.seconds() - ours.prefill[OpClass::head].seconds == Approx(theirs.prefill));
  CHECK(63 * ours.mean_step.transfer == Approx(theirs.decode));
}

TEST_CASE("More offloading means fewer bytes on the device and more time", "[offload]") {
  Served served = llama();
  for (PerTier<double> Offload::*share : {&Offload::weights, &Offload::cache}) {
    served.serving.offload = {};
    Estimate before = served.made();
    for (const double value : {0.1, 0.25, 0.5, 0.9, 1.0}) {
      CAPTURE(value);
      (served.serving.offload.*share).host = value;
      const Estimate now = served.made();
      CHECK(now.peak() < before.peak());
      CHECK(now.at_end.total() < before.at_end.total());
      CHECK(now.peak(Tier::host) > before.peak(Tier::host));
      CHECK(now.time.first_token >= before.time.first_token);
      CHECK(now.time.per_token > before.time.per_token);
      before = now;
    }
  }
}

TEST_CASE("Full offloading leaves room for two layers", "[offload]") {
  Served served = llama();
  const Estimate none = served.made();
  served.serving.offload = {.weights = {1}, .cache = {1}};
  const Estimate all = served.made();
  const std::uint64_t layer = 2 * served.model.block_matrix_parameters();
  CHECK(all.at_end.weights == none.at_end.weights - 30 * layer);
  CHECK(all.at_end.keys_values * 16 == none.at_end.keys_values);
  CHECK(all.at_end.away.host == 32 * layer + none.at_end.keys_values);
  served.machine.host = {.bandwidth = 1e30, .latency = 0};  // a link that takes no time
  CHECK(served.made().time.request == Approx(none.time.request));
}

TEST_CASE("Offloading needs a link and a host that is large enough", "[offload]") {
  Served served = llama();
  served.serving.offload.weights.host = 1;
  REQUIRE(served.made().fits);
  served.machine.host_memory = 1 << 30;
  CHECK_FALSE(served.made().fits);
  served.serving.offload = {.cache = {0.5}};
  // Half of 8,256 tokens' 128 KiB is 516 MiB: a sequence fits the host's GiB, a second one does not.
  CHECK(largest_batch(served.model, served.machine, served.serving, served.full(), served.cost,
                      served.machine.memory) == 1);
  served.machine.host = {};
  CHECK_THROWS_WITH(served.made(), Catch::Contains("no link to host memory"));
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    served.serving.offload.cache.host = wrong;
    CHECK_THROWS_WITH(served.made(), Catch::Contains("offload of the cache"));
  }
}

TEST_CASE("Preempting a sequence: its cache moves, or is recomputed", "[offload]") {
  Served served = llama();
  served.serving.generate = 0;
  const auto swap = [&] { return served.made().swap.value(); };
  const Link link = served.machine.host;
  const std::uint64_t bytes = 8192ULL * 131072;
  CHECK(swap() == Approx(2 * (static_cast<double>(bytes) / link.bandwidth + 32 * link.latency)));
  CHECK(served.made().recompute ==
        Approx(pass_time(served.model, served.machine, {.prompt = 8192}, 8192, 0, true).seconds()));
  served.serving.layout.page = 16;
  CHECK(swap() == Approx(swap_time(link, bytes, 32 * 1024)));
  served.serving.tensor_parallel = 2;  // half the bytes in as many copies
  CHECK(swap() == Approx(swap_time(link, bytes / 2, 16 * 1024)));
  served.serving.tensor_parallel = 1;
  served.serving.layout.head_pages = true;
  CHECK(swap() == Approx(swap_time(link, bytes, 4 * 1024)));
  served.serving.prompt = 8192 - 15;  // the last page in use is copied whole
  CHECK(swap() == Approx(swap_time(link, bytes, 4 * 1024)));
  served.serving.offload.cache.host = 1;  // the cache is on the host already
  CHECK(swap() == 0);
  served.serving.offload.cache.host = 0;
  served.machine.host = {};
  CHECK_FALSE(served.made().swap.has_value());
}

}  // namespace kvsim::cost::test_offload
