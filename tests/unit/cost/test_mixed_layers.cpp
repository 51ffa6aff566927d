// Times and memory of layers that are not all of attention and one MLP: experts, latents, states.
#include <bit>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/device_pass.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/unit/cost/toy_model.hpp"

namespace kvsim::cost::test_mixed_layers {
namespace {

using Catch::Contains;
using Mlp = model::LayerKind::Mlp;

policy::Composition composition(const std::string& text) {
  return policy::parse_composition(text, policy::builtin());
}

Serving serving(std::uint64_t batch = 1) {
  Serving serving;
  serving.prompt = 100;
  serving.generate = 4;
  serving.batch = batch;
  return serving;
}

/// Two layers with four experts of width 6, of which a token goes to two, and something shared of width 3.
Model toy_experts() {
  Model model = toy_model();
  model.experts = {.count = 4, .used = 2, .width = 6, .shared_width = 3};
  model.kinds = {{.layers = 2, .mlp = Mlp::experts}};
  return model;
}

/// Returns the mean number of experts that some token picks: over all ways in which `tokens` tokens pick two
/// of four.
double slow_touched(int tokens) {
  double sum = 0, ways = 0;
  const auto choose = [&](const auto& self, int left, unsigned touched) -> void {
    if (left == 0) {
      sum += std::popcount(touched);
      ways += 1;
      return;
    }
    for (unsigned picked = 0; picked < 16; ++picked)
      if (std::popcount(picked) == 2) self(self, left - 1, touched | picked);
  };
  choose(choose, tokens, 0);
  return sum / ways;
}

PassTime dense(const Model& model, const Machine& machine, const Serving& serving, std::uint64_t tokens) {
  PassTime pass;
  DevicePass(model, machine, serving).dense(pass, tokens);
  return pass;
}

}  // namespace

TEST_CASE("a step reads the experts that its tokens are routed to, in the mean", "[cost][experts]") {
  const Model model = toy_experts();
  const Machine machine = find_machine("t4");
  for (const int tokens : {1, 2, 3, 4}) {
    CAPTURE(tokens);
    const double n = tokens, h = 4, touched = slow_touched(tokens);
    // Per layer in 16 bits: queries 4, keys and values 2 each; output; router; experts; the shared MLP.
    const double weights = h * 8 + 4 * h + h * 4 + touched * 3 * h * 6 + 3 * h * 3;
    const double moved = n * (h + 8 + 4 + h + h + 4 + 2 * (h + 12 + 6 + h) + (h + 6 + 3 + h));
    const OpTime linear =
        dense(model, machine, serving(static_cast<std::uint64_t>(tokens)), 1)[OpClass::linear];
    CHECK(linear.bytes == Approx(2 * 2 * (weights + moved)));
    CHECK(linear.flops == Approx(2 * 2 * n * (h * 8 + 4 * h + h * 4 + 2 * 3 * h * 6 + 3 * h * 3)));
  }
}

TEST_CASE("experts that every token picks are one wide MLP and a router", "[cost][experts]") {
  Model all = toy_experts(), wide = toy_model();
  all.experts = {.count = 3, .used = 3, .width = 5};
  wide.ffn = 15;
  CHECK(all.parameters() == wide.parameters() + 2 * 4 * 3);
  CHECK(all.streamed_parameters() == wide.streamed_parameters());
  CHECK(weight_bytes(all, Runtime{}, 1) == weight_bytes(wide, Runtime{}, 1) + 2 * 2 * 4 * 3);
  const Machine machine = find_machine("t4");
  CHECK(dense(all, machine, serving(7), 1)[OpClass::linear].flops ==
        dense(wide, machine, serving(7), 1)[OpClass::linear].flops + 2 * 2 * 7 * 4 * 3);
}

TEST_CASE("a latent is read once for all heads, and stored once", "[cost][latent]") {
  const Model model = find_model("deepseek-v3");
  const Machine machine = find_machine("h200-sxm");
  const double heads = 128, width = 576 + 512, n = 4096;
  Serving served = serving(3);
  served.prompt = 4096;
  const Holding holding = whole_holding(model, 1, 4096);
  PassTime pass;
  DevicePass(model, machine, served).decode_attention(pass, holding, {}, 0);
  CHECK(pass[OpClass::attention].flops == Approx(61 * 3 * 2 * width * heads * n));
  CHECK(pass[OpClass::attention].bytes == Approx(61 * 3 * (1152 * n + 2 * heads * width)));
  CHECK(memory_at(model, machine, served, holding, {}, 0).keys_values == 3 * 4096 * 70'272ULL);
  // Each of eight devices has the whole latent.
  served.tensor_parallel = 8;
  CHECK(memory_at(model, machine, served, holding, {}, 0).keys_values == 3 * 4096 * 70'272ULL);
  // A prompt is computed with keys of 192 and values of 128 of every head.
  served.tensor_parallel = 1;
  PassTime prefill;
  DevicePass(model, machine, served).prefill_attention(prefill, {}, 4096, 0);
  CHECK(prefill[OpClass::attention].flops == Approx(61 * 3 * 2 * (192 + 128) * heads * n * (n + 1) / 2));
}

TEST_CASE("products of a token are two operations for each active parameter, absorbed or expanded",
          "[cost][latent]") {
  for (const char* name : {"deepseek-v3", "glm-4.7-flash", "qwen3-30b-a3b", "qwen3-next-80b-a3b",
                           "nemotron-3-nano-30b-a3b", "falcon-h1-34b"}) {
    CAPTURE(name);
    const Model model = find_model(name);
    std::uint64_t routed = 0;
    for (const model::LayerKind& kind : model.kinds) routed += kind.mlp == Mlp::experts ? kind.layers : 0;
    const auto active = static_cast<double>(model.streamed_parameters() - model.vocab * model.hidden +
                                            routed * model.hidden * model.experts.count);
    CHECK(dense(model, find_machine("h200-sxm"), serving(), 1)[OpClass::linear].flops == Approx(2 * active));
  }
}

TEST_CASE("states are held and moved whatever the prompt is", "[cost][state]") {
  const Model model = find_model("qwen3-next-80b-a3b");
  const Machine machine = find_machine("h200-sxm");
  const std::uint64_t state = 36 * (4ULL * 32 * 128 * 128 + 2 * 3 * 8192);
  for (const std::uint64_t prompt : {100, 10'000}) {
    Serving served = serving(2);
    served.prompt = prompt;
    const Holding holding = whole_holding(model, 2, prompt);
    const Memory memory = memory_at(model, machine, served, holding, {}, 0);
    CHECK(memory.states == 2 * state);
    CHECK(memory.keys_values == 2 * prompt * 12 * 2 * 2 * 256 * 2);
    CHECK(memory.cache() == memory.states + memory.keys_values);
    served.tensor_parallel = 2;
    CHECK(memory_at(model, machine, served, holding, {}, 0).states == state);
  }
  Model without = model;
  without.recurrence.state = without.recurrence.convolution = 0;
  const auto moved = [&](const Model& of) {
    return dense(of, machine, serving(2), 1)[OpClass::elementwise].bytes;
  };
  CHECK(moved(model) - moved(without) == Approx(2.0 * 2 * static_cast<double>(state)));
  CHECK(*swap_seconds(model, machine, serving(), whole_holding(model, 2, 100), {}) >
        *swap_seconds(without, machine, serving(), whole_holding(model, 2, 100), {}));
}

TEST_CASE("products of fp8 run at the rate of fp8 where the machine has one", "[cost][fp8]") {
  const Model model = find_model("deepseek-v3");
  const auto compute = [&](const char* machine, std::optional<double> bits) {
    Serving served = serving();
    served.runtime.weight_bits = bits;
    return dense(model, find_machine(machine), served, 4096)[OpClass::linear].compute;
  };
  CHECK(compute("h100-sxm", {}) < 0.52 * compute("h100-sxm", 8));
  CHECK(compute("a100-80-sxm", {}) == compute("a100-80-sxm", 8));
  CHECK(weight_bytes(model, Runtime{}, 1) < model.parameters() * 102 / 100);
  // Experts alone have 4.25 bits: 4 and a scale of 8 for each 32.
  const Model gpt = find_model("gpt-oss-120b");
  CHECK(gpt.weight_bits == 16);
  CHECK(gpt.expert_bits == 4.25);
  CHECK(gpt.product_bits == 16);
  // Their model card prints 60.8 and 12.8 GiB.
  CHECK(static_cast<double>(weight_bytes(gpt, Runtime{}, 1)) / 0x1p30 == Approx(60.8).margin(0.05));
  CHECK(static_cast<double>(weight_bytes(find_model("gpt-oss-20b"), Runtime{}, 1)) / 0x1p30 ==
        Approx(12.8).margin(0.05));
}

TEST_CASE("what such layers have no price of is refused by name", "[cost][latent]") {
  const Model latent = find_model("deepseek-v3");
  const Machine machine = find_machine("h200-sxm");
  Serving served = serving();
  CHECK_THROWS_WITH(estimate(latent, machine, served, composition("snapkv+fp8"), 64),
                    Contains("fp8") && Contains("deepseek-v3") && Contains("latent"));
  CHECK_NOTHROW(estimate(latent, machine, served, composition("snapkv"), 64));
  served.layout.stored_kv_heads = 128;
  CHECK_THROWS_WITH(estimate(latent, machine, served, composition("full"), 100), Contains("stored once"));
  served = serving();
  served.offload.cache.host = 1;
  CHECK_THROWS_WITH(estimate(latent, machine, served, composition("full"), 100),
                    Contains("not on the device"));
  CHECK_THROWS_WITH(require_equal_layers(find_model("qwen3-next-80b-a3b"), "a batch"),
                    Contains("a state of fixed"));
}

TEST_CASE("layers that share a cache hold it once, read it each, and see the last token of a prompt",
          "[cost][crossing]") {
  const Model model = find_model("yoco-3b");
  const double h = 3072, f = 8192, n = 4096, heads = 24, dim = 128;
  CHECK(model.cached_layers() == 1);
  CHECK(model.crossing_layers() == 13);
  CHECK(model.remembering_layers() == 13);
  // 24 states of 128 times 128 numbers in 16 bits; 8 KV heads of 128, keys and values.
  CHECK(model.state_bytes() == 24 * 128 * 128 * 2);
  CHECK(full_cache_bytes(model, {}, 10, 3) == 30 * 8 * 2 * 128 * 2);
  const double self = h * (4 * h + heads) + h * h + 3 * h * f, cross = 2 * h * h + 3 * h * f,
               shared = h * 2048;
  CHECK(real(model.shared_matrix_parameters()) == 13 * (self + cross) + shared);
  // Two norms a layer, one before what is shared, one at the end; embedding and head.
  CHECK(real(model.parameters()) == 13 * (self + cross) + shared + (2 * 26 + 2) * h + 2 * 100'288 * h);

  const Machine machine = find_machine("h200-sxm");
  Serving served = serving();
  served.prompt = 4096;
  const Holding holding = whole_holding(model, 8, 4096);
  const PassTime prefill = prefill_time(model, machine, served, holding, {});
  CHECK(prefill[OpClass::linear].flops == Approx(2 * n * (13 * self + shared) + 2 * 13 * cross));
  CHECK(prefill[OpClass::attention].flops == Approx(13 * 4 * heads * dim * n));
  // In chunks the others are computed as before, and these once.
  served.chunk = 1024;
  const PassTime chunked = prefill_time(model, machine, served, holding, {});
  CHECK(chunked[OpClass::linear].flops == Approx(prefill[OpClass::linear].flops));
  CHECK(chunked[OpClass::attention].flops == Approx(prefill[OpClass::attention].flops));
  // A step, and a verification of three rows, go through all layers, and read the cache in each.
  const PassTime step = step_time(model, machine, served, holding, {}, 1);
  CHECK(step[OpClass::linear].flops == Approx(2 * (13 * (self + cross) + shared)));
  CHECK(step[OpClass::attention].bytes == Approx(13 * (4096 * (n + 1) + 2 * 2 * heads * dim)));
  const PassTime three = verification_time(model, machine, served, 3, 4096);
  CHECK(three[OpClass::linear].flops == Approx(3 * step[OpClass::linear].flops));
  CHECK(three[OpClass::attention].flops == Approx(13 * 3 * 4 * heads * dim * (n + 3)));
  // A policy cuts the one cache.
  CHECK(estimate(model, machine, serving(), composition("snapkv"), 50).at_end.keys_values ==
        (50 + 4) * 8 * 2 * 128 * 2);
}

}  // namespace kvsim::cost::test_mixed_layers
