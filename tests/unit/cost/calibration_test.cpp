// Ceilings are found again from the times they make.
#include "sim/cost/calibration.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/relative_fit.hpp"

namespace kvsim::cost {
namespace {

/// 4 layers of 8 query and 4 KV heads of 64, 256 hidden: the size of the sample model.
Model small_model() {
  Model model;
  model.layers = 4;
  model.hidden = 256;
  model.ffn = 768;
  model.vocab = 2048;
  model.query_heads = 8;
  model.kv_heads = 4;
  model.head_dim = model.value_dim = 64;
  model.tied_embeddings = true;
  return model;
}

/// Wide enough that reading its weights outweighs starting its operations.
Model wide_model() {
  Model model = small_model();
  model.hidden = 2048;
  model.ffn = 8192;
  model.query_heads = 32;
  return model;
}

Machine known_machine() {
  Machine machine = unknown_machine("known", 1 << 30);
  machine.matrix_rate = machine.vector_rate = 2e11;
  machine.bandwidth = 5e10;
  machine.ceilings.compute = 0.5;
  machine.ceilings.memory = 0.6;
  machine.ceilings.elementwise_memory = 0.45;
  machine.ceilings.norm = 1.5;
  machine.ceilings.launch = 4e-6;
  machine.ceilings.elementwise_launch = 24e-6;
  machine.ceilings.attention_compute = 0.4;
  machine.ceilings.attention_memory = 0.7;
  machine.ceilings.attention_launch = 9e-6;
  machine.ceilings.attention_rows = 64;
  return machine;
}

/// Chunked prompts of three lengths and decode steps after each, timed by the model itself; `noise` is the
/// half-width of a uniform relative error.
Recording recorded(const Model& model, const Machine& machine, bool attention, double noise = 0) {
  Recording recording{.model = model, .serving = {}, .passes = {}};
  recording.serving.prompt = 1;
  const auto add = [&](std::uint64_t tokens, std::uint64_t past) {
    const PassTime time = pass_time(model, machine, recording.serving, tokens, past, tokens == 1);
    const auto noisy = [&](double seconds, std::uint64_t part) {
      return seconds *
             (1 + noise * (2 * uniform01(combine({key_of("calibration"), tokens, past, part})) - 1));
    };
    const double alone = noisy(time[OpClass::attention].seconds, 0);
    const double rest = noisy(time.seconds() - time[OpClass::attention].seconds, 1);
    recording.passes.push_back({.tokens = tokens,
                                .past = past,
                                .logits = tokens == 1,
                                .seconds = alone + rest,
                                .attention_seconds = attention ? alone : 0});
  };
  for (const std::uint64_t chunk : {16, 64, 200, 512})
    for (std::uint64_t past = 0; past + chunk <= 4096; past += 512) add(chunk, past);
  for (std::uint64_t past = 100; past <= 6000; past += 97) add(1, past);
  return recording;
}

double rate(const Machine& machine, double Ceilings::*share, double Machine::*of) {
  return machine.ceilings.*share * machine.*of;
}

/// Whatever the rates are that the ceilings are shares of.
void check_same_ceilings(const Machine& a, const Machine& b, double tolerance) {
  const auto same = [&](double got, double expected) { CHECK(got == Approx(expected).epsilon(tolerance)); };
  for (const auto share : {&Ceilings::compute, &Ceilings::attention_compute})
    same(rate(a, share, &Machine::matrix_rate), rate(b, share, &Machine::matrix_rate));
  for (const auto share : {&Ceilings::memory, &Ceilings::elementwise_memory, &Ceilings::attention_memory})
    same(rate(a, share, &Machine::bandwidth), rate(b, share, &Machine::bandwidth));
  for (const auto seconds : {&Ceilings::launch, &Ceilings::elementwise_launch, &Ceilings::attention_launch})
    same(a.ceilings.*seconds, b.ceilings.*seconds);
}

TEST_CASE("Ceilings are found again from exact times, whatever is known of the machine") {
  const Machine known = known_machine();
  const std::vector<Recording> recordings{recorded(small_model(), known, true),
                                          recorded(wide_model(), known, true)};
  const Calibration found = calibrate(recordings, unknown_machine("mine", 1 << 30));
  check_same_ceilings(found.machine, known, 1e-3);
  CHECK(found.machine.ceilings.norm == 1.5);
  CHECK(found.machine.ceilings.attention_rows == 64);
  CHECK(*found.fitted.all < 1e-4);
  CHECK(*found.held_out.all < 1e-4);
}

TEST_CASE("Five per cent of noise moves predictions by less") {
  const Machine known = known_machine();
  const std::vector<Recording> noisy{recorded(small_model(), known, true, 0.05),
                                     recorded(wide_model(), known, true, 0.05)};
  const Calibration found = calibrate(noisy, unknown_machine("mine", 1 << 30));
  // Uniform noise of half-width 5 % has a mean absolute value of 2.5 %.
  CHECK(*found.held_out.all == Approx(0.025).margin(0.008));
  CHECK(*found.fitted.all == Approx(0.025).margin(0.008));
  const Recording exact = recorded(wide_model(), known, true);
  for (const TimedPass& pass : exact.passes) {
    const PassTime time =
        pass_time(exact.model, found.machine, exact.serving, pass.tokens, pass.past, pass.logits);
    CHECK(time.seconds() == Approx(pass.seconds).epsilon(0.05));
  }
}

}  // namespace
}  // namespace kvsim::cost
