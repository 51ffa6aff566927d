#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/latency.hpp"
#include "tests/unit/cost/toy_model.hpp"

namespace kvsim::cost::test_latency {
namespace {

/// Rates small enough for hand calculation; times of both limits add up.
Machine toy_machine() {
  Machine machine;
  machine.name = "toy";
  machine.matrix_rate = 1000;
  machine.vector_rate = 50;
  machine.bandwidth = 100;
  machine.memory = 1'000'000;
  Ceilings& ceilings = machine.ceilings;
  ceilings.compute = ceilings.attention_compute = 0.5;
  ceilings.memory = ceilings.attention_memory = ceilings.elementwise_memory = 1;
  ceilings.norm = 1;
  ceilings.launch = 1;
  ceilings.elementwise_launch = 0;
  ceilings.attention_launch = 10;
  ceilings.attention_sequence = 0;
  ceilings.attention_rows = 1;
  return machine;
}

Serving serving_of(std::uint64_t prompt, std::uint64_t generate, std::uint64_t batch = 1) {
  Serving serving;
  serving.prompt = prompt;
  serving.generate = generate;
  serving.batch = batch;
  return serving;
}

Holding full_holding(const Model& model, std::uint64_t prompt) {
  return whole_holding(model, model.kv_heads, prompt);
}

double rate(double flops, double bytes, const Machine& machine, double compute, double memory) {
  const double norm = machine.ceilings.norm;
  return std::pow(std::pow(flops / (compute * machine.matrix_rate), norm) +
                      std::pow(bytes / (memory * machine.bandwidth), norm),
                  1 / norm);
}

/// A pass straight from its definition: every layer, product, row and key separately; two bytes per element,
/// causal fused attention, no policy. Keys of a row: `held` of every lane and the new ones up to itself.
double slow_pass(const Model& model, const Machine& machine, std::uint64_t batch, std::uint64_t tokens,
                 const std::vector<std::vector<std::uint64_t>>& held, bool decodes, bool logits) {
  const Ceilings& c = machine.ceilings;
  const auto real = [](std::uint64_t n) { return static_cast<double>(n); };
  const double all = real(batch * tokens), h = real(model.hidden), f = real(model.ffn),
               d = real(model.head_dim);
  const double heads = real(model.query_heads), lanes = real(model.kv_heads), group = heads / lanes;
  const auto product = [&](double in, double out) {
    return rate(2 * all * in * out, 2 * in * out + 2 * all * (in + out), machine, c.compute, c.memory) +
           c.launch;
  };
  double seconds = 0;
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    seconds +=
        product(h, d * (heads + 2 * lanes)) + product(heads * d, h) + product(h, 2 * f) + product(f, h);
    const double elements = 10 * h + 3 * f + 2 * (heads + lanes) * d;
    const double small =
        (2 * all * elements + all * lanes * 4 * d) / (c.elementwise_memory * machine.bandwidth);
    seconds += std::sqrt(small * small + c.elementwise_launch * c.elementwise_launch);
    double flops = 0, bytes = all * heads * 4 * d;
    for (const std::uint64_t past : held[layer]) {
      for (std::uint64_t row = 1; row <= tokens; ++row)
        for (std::uint64_t key = 1; key <= past + row; ++key) flops += real(batch) * group * 4 * d;
      bytes += real(batch) * real(past + tokens) * 4 * d;
    }
    seconds += rate(flops, bytes, machine, c.attention_compute, c.attention_memory) + c.attention_launch +
               (decodes ? c.attention_sequence * std::sqrt(real(batch)) : 0);
  }
  if (logits) {
    const double in = h, out = real(model.vocab), rows = real(batch);
    seconds += rate(2 * rows * in * out, 2 * in * out + 2 * rows * (in + out), machine, c.compute, c.memory) +
               c.launch;
  }
  return seconds;
}

/// Layers and heads that differ: pieces with their own limits.
struct Ragged {
  Model model = toy_model();
  Machine machine = toy_machine();
  Serving serving = serving_of(20, 300, 3);
  Holding holding{};
  Ragged() {
    model.layers = 3;
    model.query_heads = 4;
    model.kv_heads = 2;
    machine.ceilings.norm = 2;
    machine.ceilings.attention_sequence = 0.5;
    machine.ceilings.elementwise_launch = 3;
    holding.layers = {{1, {{1, 5, 50}, {1, 20, kNoLimit}}}, {2, {{2, 20, 130}}}};
  }
  /// Tokens held at a step, before its own token.
  std::vector<std::vector<std::uint64_t>> held(std::uint64_t step) const {
    const auto at = [&](std::uint64_t start, std::uint64_t limit) {
      return std::min(start + step, limit) - 1;
    };
    const std::uint64_t more = at(20, 130);
    return {{at(5, 50), at(20, kNoLimit)}, {more, more}, {more, more}};
  }
};

constexpr policy::Cost kNothing{};

}  // namespace

TEST_CASE("A step's products, by hand", "[latency]") {
  const PassTime step =
      step_time(toy_model(), toy_machine(), serving_of(5, 9, 3), full_holding(toy_model(), 5), kNothing, 1);
  // One token of three sequences. Queries, keys and values: 4 -> 8: 192 FLOP at 500 FLOP/s, 64 bytes of
  // weights and 2 * 3 * 12 of activations at 100 B/s. Then 4 -> 4: 96, 80; 4 -> 16: 384, 248; 8 -> 4: 192,
  // 136. Two layers, four launches of 1 s each.
  CHECK(step[OpClass::linear].flops == 2 * (192 + 96 + 384 + 192));
  CHECK(step[OpClass::linear].bytes == 2 * (136 + 80 + 248 + 136));
  CHECK(step[OpClass::linear].seconds == Approx(2 * (864 / 500.0 + 600 / 100.0 + 4)));
  CHECK(step[OpClass::linear].bound() == Bound::memory);
  // Ten h, three f, twice three heads of two components; keys and values of one token are appended.
  CHECK(step[OpClass::elementwise].bytes == 2 * 3 * (2 * (40 + 24 + 12) + 8));
  // 6 tokens of one lane serve two heads: 2 heads * 4 * 2 * 6 keys; 8 bytes per token, 16 of queries and
  // outputs.
  CHECK(step[OpClass::attention].flops == 2 * 3 * 96);
  CHECK(step[OpClass::attention].bytes == 2 * 3 * (48 + 16));
  CHECK(step[OpClass::attention].seconds == Approx(2 * (3 * 96 / 500.0 + 3 * 64 / 100.0 + 10)));
  CHECK(step[OpClass::attention].bound() == Bound::overhead);
  CHECK(step[OpClass::head].flops == 2 * 3 * 40);
  CHECK(step[OpClass::policy].seconds == 0);
  CHECK(step[OpClass::communication].seconds == 0);
}

TEST_CASE("Rooflines lie between the larger time and the sum", "[latency]") {
  CHECK(roofline(3, 4, 1) == 7);
  CHECK(roofline(3, 4, 2) == 5);
  CHECK(roofline(3, 4, 1e6) == Approx(4).epsilon(1e-5));
  CHECK(roofline(0, 0, 3) == 0);
  CHECK(roofline(1e-300, 1e-300, 300) == Approx(1e-300).epsilon(0.01));
}

TEST_CASE("Passes agree with one row, one key, one lane at a time", "[latency]") {
  const Ragged ragged;
  for (const std::uint64_t step : {1, 29, 30, 31, 109, 110, 111, 299}) {
    const double slow = slow_pass(ragged.model, ragged.machine, 3, 1, ragged.held(step), true, true);
    CHECK(step_time(ragged.model, ragged.machine, ragged.serving, ragged.holding, kNothing, step).seconds() ==
          Approx(slow).epsilon(1e-12));
  }
  Serving serving = ragged.serving;
  const std::vector<std::vector<std::uint64_t>> none(3, {0, 0}), some(3, {13, 13});
  CHECK(prefill_time(ragged.model, ragged.machine, serving, ragged.holding, kNothing).seconds() ==
        Approx(slow_pass(ragged.model, ragged.machine, 3, 20, none, false, true)).epsilon(1e-12));
  CHECK(pass_time(ragged.model, ragged.machine, serving, 7, 13, false).seconds() ==
        Approx(slow_pass(ragged.model, ragged.machine, 3, 7, some, false, false)).epsilon(1e-12));
  serving.chunk = 7;
  const std::vector<std::vector<std::uint64_t>> seven(3, {7, 7}), fourteen(3, {14, 14});
  CHECK(prefill_time(ragged.model, ragged.machine, serving, ragged.holding, kNothing).seconds() ==
        Approx(slow_pass(ragged.model, ragged.machine, 3, 7, none, false, false) +
               slow_pass(ragged.model, ragged.machine, 3, 7, seven, false, false) +
               slow_pass(ragged.model, ragged.machine, 3, 6, fourteen, false, true))
            .epsilon(1e-12));
}

TEST_CASE("The mean of all steps is the mean of every step", "[latency]") {
  Ragged ragged;
  for (const double floor : {0.0, 80.0}) {  // the second lies between the shortest and the longest step
    ragged.serving.runtime.host_floor = floor;
    ragged.machine.cache = 900;
    const Latency time = latency(ragged.model, ragged.machine, ragged.serving, ragged.holding, kNothing);
    double sum = 0, attention = 0;
    for (std::uint64_t step = 1; step < 300; ++step) {
      const PassTime pass =
          step_time(ragged.model, ragged.machine, ragged.serving, ragged.holding, kNothing, step);
      sum += pass.seconds();
      attention += pass[OpClass::attention].seconds;
    }
    CHECK(time.per_token == Approx(sum / 299).epsilon(1e-6));
    CHECK(time.mean_step[OpClass::attention].seconds == Approx(attention / 299).epsilon(1e-5));
    CHECK(time.request == Approx(time.first_token + sum).epsilon(1e-6));
    CHECK(time.tokens_per_second == Approx(3 * 300 / time.request));
    CHECK(time.first_step.seconds() <= time.per_token);
    CHECK(time.per_token <= time.last_step.seconds());
  }
  CHECK(latency(ragged.model, ragged.machine, serving_of(20, 1), ragged.holding, kNothing).per_token == 0);
  CHECK(
      latency(ragged.model, ragged.machine, serving_of(20, 0), ragged.holding, kNothing).tokens_per_second ==
      0);
}

TEST_CASE("Sums over steps are exact for quadratics and close for functions with corners", "[latency]") {
  const auto pass_of = [](double seconds) {
    PassTime pass;
    pass[OpClass::linear].seconds = seconds;
    return pass;
  };
  std::uint64_t calls = 0;
  const auto quadratic = [&](std::uint64_t step) {
    ++calls;
    const auto x = static_cast<double>(step);
    return pass_of(1 + 2 * x + 3 * x * x);
  };
  // n + n (n + 1) + n (n + 1) (2 n + 1) / 2 for n = 1000, without the first ten.
  CHECK(sum_steps(11, 1000, {}, quadratic).seconds() ==
        Approx(1000 + 1001000 + 1001500500.0 - (10 + 110 + 1155)));
  CHECK(calls == 7);
  CHECK(sum_steps(5, 4, {}, quadratic).seconds() == 0);
  CHECK(sum_steps(5, 5, {5, 9}, quadratic).seconds() == 86);
  const auto corner = [&](std::uint64_t step) {
    return pass_of(static_cast<double>(std::min<std::uint64_t>(step, 700)));
  };
  CHECK(sum_steps(1, 1000, {}, corner).seconds() == Approx(700 * 701 / 2 + 300 * 700).epsilon(1e-6));
  CHECK(sum_steps(1, 1000, {700}, corner).seconds() == Approx(700 * 701 / 2 + 300 * 700).epsilon(1e-12));
  const auto saw = [&](std::uint64_t step) { return pass_of(100 + static_cast<double>(step % 32)); };
  CHECK(sum_steps(1, 3200, {}, saw).seconds() == Approx(3200 * 115.5).epsilon(1e-3));
  // Ends, middle and quarters are whole periods apart.
  const auto windows = [&](std::uint64_t step) { return pass_of(100 + static_cast<double>(step % 128)); };
  CHECK(sum_steps(1, 1025, {}, windows).seconds() == Approx(1025 * 100 + 8 * 8128 + 1).epsilon(1e-3));
}

TEST_CASE("Chunks read the weights again and attend the same pairs", "[latency]") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const Holding holding = full_holding(model, 8192);
  Serving serving = serving_of(8192, 10);
  const PassTime once = prefill_time(model, machine, serving, holding, kNothing);
  // 2 * 32 * 218,103,808 parameters * 8,192 tokens; 4 * 32 * 128 * 32 layers * 8,192 * 8,193 / 2 pairs.
  CHECK(once[OpClass::linear].flops == Approx(2.0 * 32 * 218103808 * 8192));
  CHECK(once[OpClass::attention].flops == Approx(4.0 * 32 * 128 * 32 * 8192 * 8193 / 2));
  serving.chunk = 8192;
  CHECK(prefill_time(model, machine, serving, holding, kNothing).seconds() == once.seconds());
  serving.chunk = 512;
  const PassTime chunked = prefill_time(model, machine, serving, holding, kNothing);
  CHECK(chunked[OpClass::linear].flops == Approx(once[OpClass::linear].flops));
  CHECK(chunked[OpClass::attention].flops == Approx(once[OpClass::attention].flops));
  CHECK(chunked[OpClass::linear].bytes - once[OpClass::linear].bytes == Approx(15 * 2.0 * 32 * 218103808));
  CHECK(chunked.seconds() > once.seconds());
}

TEST_CASE("Rows of a streamed prompt attend at most the budget", "[latency]") {
  const Model model = toy_model();
  policy::Cost streams;
  streams.streams = true;
  Serving serving = serving_of(20, 1);
  const Holding holding{{{1, {{1, 6, 6}}}, {1, {{1, 20, kNoLimit}}}}};
  const auto flops = [&] {
    return prefill_time(model, toy_machine(), serving, holding, streams)[OpClass::attention].flops;
  };
  // 1 + 2 + ... + 6 and fourteen times 6 keys in one layer, 1 + ... + 20 in the other; 2 heads, 8 FLOP a key.
  CHECK(flops() == 16 * (21 + 14 * 6 + 210));
  serving.chunk = 7;
  CHECK(flops() == 16 * (21 + 14 * 6 + 210));
  streams.streams = false;
  CHECK(flops() == 16 * (210 + 210));
}

TEST_CASE("Large norms give the larger of both times", "[latency]") {
  Machine machine = toy_machine();
  machine.ceilings.norm = 1e9;
  const PassTime step =
      step_time(toy_model(), machine, serving_of(5, 9, 3), full_holding(toy_model(), 5), kNothing, 1);
  // As in the first case: every product is memory bound.
  CHECK(step[OpClass::linear].seconds == Approx(2 * (600 / 100.0 + 4)));
  CHECK(step[OpClass::linear].compute == Approx(2 * 864 / 500.0));
}

TEST_CASE("The host's floor applies to every pass", "[latency]") {
  Serving serving = serving_of(20, 3);
  serving.chunk = 6;
  serving.runtime.host_floor = 1e6;
  const Latency time = latency(toy_model(), toy_machine(), serving, full_holding(toy_model(), 20), kNothing);
  CHECK(time.first_token == Approx(4e6));
  CHECK(time.request == Approx(6e6));
}

TEST_CASE("More work is never faster, and a batch shares the weights", "[latency]") {
  const Model model = find_model("llama-3-8b");
  for (const Machine& machine : known_machines()) {
    CAPTURE(machine.name);
    double last_prefill = 0, last_step = 0;
    for (const std::uint64_t tokens : {1, 2, 100, 128, 129, 1000, 8192, 131072}) {
      const double prefill = pass_time(model, machine, serving_of(1, 1), tokens + 1, 0, true).seconds();
      const double step = pass_time(model, machine, serving_of(1, 1), 1, tokens, true).seconds();
      CHECK(prefill > last_prefill);
      CHECK(step > last_step);
      last_prefill = prefill;
      last_step = step;
    }
    double last = 0, last_per_sequence = 1e9;
    for (const std::uint64_t batch : {1, 2, 8, 64, 512}) {
      const double step = pass_time(model, machine, serving_of(1, 1, batch), 1, 1024, true).seconds();
      CHECK(step > last);
      CHECK(step / static_cast<double>(batch) < last_per_sequence);
      last = step;
      last_per_sequence = step / static_cast<double>(batch);
    }
  }
}

TEST_CASE("A bigger budget is never faster, and a budget of all tokens is the full cache", "[latency]") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const Serving serving = serving_of(4096, 128);
  const auto step = [&](const char* policy, std::uint64_t budget) {
    const policy::Composition composition = policy::parse_composition(policy, policy::builtin());
    return estimate(model, machine, serving, composition, budget).time.mean_step;
  };
  for (const char* policy : {"snapkv", "h2o", "streaming_llm"}) {
    CAPTURE(policy);
    double last = 0;
    for (const std::uint64_t budget : {128, 512, 2048, 4096}) {
      CHECK(step(policy, budget).seconds() > last);
      last = step(policy, budget).seconds();
    }
    CHECK(step(policy, 4224)[OpClass::attention].seconds ==
          Approx(step("full", 4224)[OpClass::attention].seconds));
  }
}

TEST_CASE("A policy's work is priced where it happens", "[latency]") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  Serving serving = serving_of(8192, 100);
  const Holding holding = full_holding(model, 8192);
  const auto prefill = [&](const policy::Cost& cost) {
    return prefill_time(model, machine, serving, holding, cost);
  };
  policy::Cost all_rows;
  all_rows.prompt_rows = policy::kAllRows;
  // Four passes over 32 * 8192^2 scores of two bytes, 32 layers: 550 GB.
  CHECK(prefill(all_rows)[OpClass::policy].bytes == Approx(549.8e9).epsilon(1e-4));
  serving.runtime.rows = RowSource::recomputed;
  CHECK(prefill(all_rows)[OpClass::policy].flops == Approx(2.0 * 128 * 32 * 32 * 8192 * 8193 / 2));
  serving.runtime.attention = Attention::eager;
  CHECK(prefill(all_rows)[OpClass::policy].seconds == 0);  // eager attention has the rows already
  CHECK(prefill({})[OpClass::attention].bytes > 549e9);
  serving.runtime = {};

  policy::Cost window;
  window.prompt_rows = 32;
  CHECK(prefill(window)[OpClass::policy].flops == Approx(2.0 * 32 * 8192 * 32 * 128 * 32));
  CHECK(prefill(window)[OpClass::policy].seconds < 0.02 * prefill({}).seconds());

  policy::Cost measured;
  measured.extra_prefills = 1;
  const PassTime plain = prefill({});
  const double extra = prefill(measured)[OpClass::policy].seconds;  // a tenth of the requests run it
  CHECK(extra == Approx(0.097 * plain.seconds()).epsilon(0.02));
  serving.runtime.host_floor = 10;  // s: the second prefill waits for it as the first does
  CHECK(prefill(measured).seconds() == Approx(11).epsilon(0.001));
  serving.runtime.host_floor = 0;
  serving.runtime.row_share = 0;
  CHECK(prefill(measured).seconds() == plain.seconds());
  serving.runtime = {};

  // KVzip's second pass: 8192 tokens once more, 2000 at once and the last 192, each over 8192 and themselves.
  policy::Cost repeated;
  repeated.repeated_at_once = 2000;
  double linear = 0, over_prompt = 0;
  for (const std::uint64_t tokens : {2000, 2000, 2000, 2000, 192}) {
    const PassTime chunk = pass_time(model, machine, serving, tokens, 8192, false);
    linear += chunk[OpClass::linear].flops;
    over_prompt += chunk[OpClass::attention].flops;
  }
  CHECK(linear == Approx(plain[OpClass::linear].flops));
  CHECK(over_prompt == Approx(4.0 * 128 * 32 * 32 * (8192.0 * 8192 + 4 * 2000 * 2001 / 2 + 192 * 193 / 2)));
  const OpTime second = prefill(repeated)[OpClass::policy];
  CHECK(second.flops == Approx(linear + over_prompt + plain[OpClass::elementwise].flops));
  repeated.repeated_at_once = 8192;
  CHECK(prefill(repeated)[OpClass::policy].flops ==
        Approx(plain[OpClass::linear].flops + 3 * plain[OpClass::attention].flops).epsilon(1e-3));

  policy::Cost slots;
  slots.step_slot.bytes = 1000;
  slots.step.launches = 2;
  serving.batch = 3;
  const PassTime step = step_time(model, machine, serving, holding, slots, 8);
  CHECK(step[OpClass::policy].bytes == 3.0 * 32 * 8200 * 1000);
  CHECK(step[OpClass::policy].overhead == Approx(32 * 2 * machine.ceilings.launch));
  policy::Cost rows;
  rows.decode_rows = true;
  CHECK(step_time(model, machine, serving, holding, rows, 8)[OpClass::policy].bytes ==
        3.0 * 32 * 2 * 2 * 32 * 8200);
}

TEST_CASE("Runtimes and layouts change the moved bytes", "[latency]") {
  const Model model = find_model("llama-3-8b");
  Machine machine = find_machine("a100-80-sxm");
  Serving serving = serving_of(4095, 100, 4);
  const Holding holding = full_holding(model, 4095);
  const auto step = [&] { return step_time(model, machine, serving, holding, kNothing, 1); };
  const double cache = 4.0 * 4096 * 131072, rest = 4.0 * 32 * 2 * 32 * 256;
  CHECK(step()[OpClass::attention].bytes == Approx(cache + rest));
  const double linear = step()[OpClass::linear].bytes;
  serving.runtime.cache_traffic = 3;
  CHECK(step()[OpClass::attention].bytes == Approx(3 * cache + rest));
  serving.runtime = {};
  serving.runtime.weight_bits = 4;
  CHECK(linear - step()[OpClass::linear].bytes == Approx(1.5 * 32 * 218103808));
  serving.runtime = {};
  serving = served_with(serving, policy::parse_composition("full+fp8", policy::builtin()));
  CHECK(step()[OpClass::attention].bytes == Approx(cache / 2 + rest));
  serving.layout = {};
  serving.runtime.host_floor = 1;
  CHECK(step().seconds() == Approx(1));
  CHECK(step().host > 0.9);
  serving.runtime = {};

  const Holding ragged{{{32, {{4, 95, kNoLimit}, {4, 4095, kNoLimit}}}}};
  const auto bytes = [&] {
    return step_time(model, machine, serving, ragged, kNothing, 1)[OpClass::attention].bytes - rest;
  };
  CHECK(bytes() == Approx(cache / 2 + cache / 4096 * 96 / 2));
  serving.layout.padded = true;
  CHECK(bytes() == Approx(cache));
  serving.layout = {};

  Model windowed = model;
  windowed.window = 1024;
  CHECK(step_time(windowed, machine, serving, full_holding(windowed, 4095), kNothing, 1)[OpClass::attention]
            .bytes == Approx(cache / 4 + rest));
  // 1024 rows see all keys before them, the others 1024 keys.
  CHECK(pass_time(windowed, machine, serving, 4095, 0, false)[OpClass::attention].flops ==
        Approx(4 * 4.0 * 32 * 128 * 32 * (1024 * 1025 / 2 + 3071 * 1024)));
  CHECK(pass_time(windowed, machine, serving, 100, 1000, false)[OpClass::attention].flops ==
        Approx(4 * 4.0 * 32 * 128 * 32 * (24 * 1000 + 24 * 25 / 2 + 76 * 1024)));
  // Every fourth of the layers sees everything.
  for (int layer = 0; layer < 32; ++layer) windowed.full_layers.push_back(layer % 4 == 3);
  CHECK(step_time(windowed, machine, serving, full_holding(windowed, 4095), kNothing, 1)[OpClass::attention]
            .bytes == Approx(cache / 4 + 3 * cache / 16 + rest));
  CHECK(pass_time(windowed, machine, serving, 4095, 0, false)[OpClass::attention].flops ==
        Approx(4 * 4.0 * 32 * 128 * (24 * (1024.0 * 1025 / 2 + 3071 * 1024) + 8 * (4095.0 * 4096 / 2))));
}

TEST_CASE("Devices share the work and wait for each other", "[latency]") {
  const Model model = find_model("llama-3-8b");
  Machine machine = find_machine("a100-80-sxm");
  const Holding holding = full_holding(model, 4096);
  Serving serving = serving_of(4096, 100);
  const PassTime one = prefill_time(model, machine, serving, holding, kNothing);
  serving.tensor_parallel = 4;
  const PassTime four = prefill_time(model, machine, serving, holding, kNothing);
  CHECK(four[OpClass::linear].flops == Approx(one[OpClass::linear].flops / 4));
  CHECK(four[OpClass::attention].flops == Approx(one[OpClass::attention].flops / 4));
  // 64 all-reduces of 4096 * 4096 * 2 bytes, of which a ring moves 3 / 4 twice.
  CHECK(four[OpClass::communication].bytes == Approx(64 * 1.5 * 4096 * 4096 * 2));
  CHECK(four[OpClass::communication].overhead == Approx(64 * 20e-6));
  // NCCL on 2, 4 and 8 A100 of a DGX: 430, 603, 675 us for 64 MiB (Vidur): 8,192 tokens of this model.
  const Holding longer = full_holding(model, 8192);
  for (const auto& [devices, microseconds] : {std::pair{2, 430.0}, {4, 603.0}, {8, 675.0}}) {
    Serving shared = serving_of(8192, 1);
    shared.tensor_parallel = static_cast<std::uint64_t>(devices);
    const OpTime reduce = prefill_time(model, machine, shared, longer, kNothing)[OpClass::communication];
    CHECK(reduce.seconds / 64 * 1e6 == Approx(microseconds).epsilon(0.07));
  }
  // More devices than KV heads: heads are replicated.
  serving.tensor_parallel = 16;
  CHECK(step_time(model, machine, serving, holding, kNothing, 1)[OpClass::attention].bytes ==
        Approx(32.0 * (4097 * 512 + 2 * 2 * 256)));
  machine.device = {};
  CHECK_THROWS_WITH(prefill_time(model, machine, serving, holding, kNothing), Catch::Contains("device_link"));
}

TEST_CASE("The largest batch is the last that fits", "[latency]") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const Serving serving = serving_of(8192, 128);
  const Holding holding = full_holding(model, 8192);
  const std::uint64_t batch = largest_batch(model, machine, serving, holding, kNothing, machine.memory);
  const auto peak = [&](std::uint64_t b) {
    Serving tried = serving;
    tried.batch = b;
    return estimate(model, machine, tried, holding, kNothing, 8192);
  };
  CHECK(batch > 10);
  CHECK(peak(batch).fits);
  CHECK_FALSE(peak(batch + 1).fits);
  CHECK(largest_batch(model, machine, serving, holding, kNothing, 1'000'000'000) == 0);
  CHECK(largest_batch(model, machine, serving, holding, kNothing, peak(1).peak()) == 1);
  CHECK_THROWS_AS(largest_batch(model, machine, serving, holding, kNothing, ~std::uint64_t{0}), Error);
}

TEST_CASE("Impossible servings are refused with the field's name", "[latency]") {
  const Model model = toy_model();
  const Machine machine = toy_machine();
  const auto refused = [&](const char* field, const std::function<void(Serving&)>& change) {
    Serving serving = serving_of(5, 5);
    change(serving);
    CHECK_THROWS_WITH(latency(model, machine, serving, full_holding(model, 5), kNothing),
                      Catch::Contains(field));
  };
  refused("prompt", [](Serving& s) { s.prompt = 0; });
  refused("batch", [](Serving& s) { s.batch = 0; });
  refused("chunk", [](Serving& s) { s.chunk = 6; });
  refused("prompt and generated", [](Serving& s) { s.generate = ~std::uint64_t{0}; });
  refused("parallel", [](Serving& s) { s.tensor_parallel = 0; });
  refused("parallel", [](Serving& s) { s.tensor_parallel = 3; });
  refused("stored KV heads", [](Serving& s) { s.layout.stored_kv_heads = 3; });
  refused("cache traffic", [](Serving& s) { s.runtime.cache_traffic = 0.5; });
  refused("host floor", [](Serving& s) { s.runtime.host_floor = -1; });
  refused("weight bits", [](Serving& s) { s.runtime.weight_bits = 0; });
  refused("row share", [](Serving& s) { s.runtime.row_share = 2; });
  CHECK_THROWS_AS(pass_time(model, machine, serving_of(5, 5), 0, 5, false), Error);
  // A holding of another model is a bug.
  for (const Holding& wrong :
       {Holding{}, Holding{{{1, {{1, 5, kNoLimit}}}}}, Holding{{{2, {{2, 5, kNoLimit}}}}},
        Holding{{{2, {{1, 5, kNoLimit}}}, {0, {{1, 5, kNoLimit}}}}}})
    try {
      latency(model, machine, serving_of(5, 5), wrong, kNothing);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bug);
    }
}

}  // namespace kvsim::cost::test_latency
