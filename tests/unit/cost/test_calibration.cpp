// Calibration recovers ceilings from the times that they produce.
#include <array>
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/calibration.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/relative_fit.hpp"

namespace kvsim::cost::test_calibration {
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

/// A model wide enough that reading its weights takes longer than starting its operations.
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

/// Compares products of rate and share, because the machine's rates may differ.
void check_same_ceilings(const Machine& a, const Machine& b, double tolerance) {
  const auto same = [&](double got, double expected) { CHECK(got == Approx(expected).epsilon(tolerance)); };
  for (const auto share : {&Ceilings::compute, &Ceilings::attention_compute})
    same(rate(a, share, &Machine::matrix_rate), rate(b, share, &Machine::matrix_rate));
  for (const auto share : {&Ceilings::memory, &Ceilings::elementwise_memory, &Ceilings::attention_memory})
    same(rate(a, share, &Machine::bandwidth), rate(b, share, &Machine::bandwidth));
  for (const auto seconds : {&Ceilings::launch, &Ceilings::elementwise_launch, &Ceilings::attention_launch})
    same(a.ceilings.*seconds, b.ceilings.*seconds);
}

TEST_CASE("Ceilings are recovered from exact times, whatever is known of the machine") {
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

TEST_CASE("Held-out passes change no ceiling") {
  const Machine known = known_machine(), unknown = unknown_machine("mine", 1 << 30);
  std::vector<Recording> recordings{recorded(small_model(), known, true)};
  const Calibration honest = calibrate(recordings, unknown);
  std::array<std::size_t, 2> seen{};
  for (TimedPass& pass : recordings[0].passes)
    if (++seen[pass.decodes() ? 1 : 0] % 5 == 0) pass.seconds *= 10;  // its attention is unchanged
  const Calibration misled = calibrate(recordings, unknown);
  CHECK(machine_text(misled.machine) == machine_text(honest.machine));
  CHECK(*misled.fitted.all == *honest.fitted.all);
  // Predictions are right, so they are a tenth of the recorded times: 90 % off.
  CHECK(*misled.held_out.prefill == Approx(0.9).margin(0.01));
  CHECK(*misled.held_out.decode == Approx(0.9).margin(0.01));
  // 32 prefill passes and 61 decode passes.
  CHECK(misled.held_out.prefill_passes == seen[0] / 5);
  CHECK(misled.held_out.decode_passes == seen[1] / 5);
  CHECK(misled.fitted.prefill_passes == seen[0] - seen[0] / 5);
}

TEST_CASE("Passes of one model cannot separate launches from reading weights: launches stay the base's") {
  const Machine known = known_machine();
  const std::vector<Recording> one{recorded(small_model(), known, true)};
  Machine base = unknown_machine("mine", 1 << 30);
  base.ceilings.launch = known.ceilings.launch;
  base.ceilings.elementwise_launch = known.ceilings.elementwise_launch;
  const Calibration found = calibrate(one, base);
  CHECK(found.machine.ceilings.launch == base.ceilings.launch);
  check_same_ceilings(found.machine, known, 1e-3);
}

TEST_CASE("Decode steps of about one length cannot separate starting attention from reading the cache") {
  const Machine known = known_machine(), unknown = unknown_machine("mine", 1 << 30);
  std::vector<Recording> recordings{recorded(small_model(), known, true)};
  CHECK(calibrate(recordings, unknown).machine.ceilings.attention_launch != 1e-6);
  std::erase_if(recordings[0].passes, [](const TimedPass& pass) {
    return pass.decodes() && (pass.past < 2000 || pass.past > 3900);
  });
  CHECK(calibrate(recordings, unknown).machine.ceilings.attention_launch == 1e-6);
}

TEST_CASE("Attention is separated from the rest where it was not timed separately") {
  const Machine known = known_machine();
  const std::vector<Recording> whole{recorded(small_model(), known, false),
                                     recorded(wide_model(), known, false)};
  const Calibration found = calibrate(whole, unknown_machine("mine", 1 << 30));
  const Machine& machine = found.machine;
  CHECK(rate(machine, &Ceilings::compute, &Machine::matrix_rate) == Approx(1e11).epsilon(0.01));
  CHECK(rate(machine, &Ceilings::memory, &Machine::bandwidth) == Approx(3e10).epsilon(0.01));
  CHECK(rate(machine, &Ceilings::attention_compute, &Machine::matrix_rate) == Approx(8e10).epsilon(0.01));
  CHECK(rate(machine, &Ceilings::attention_memory, &Machine::bandwidth) == Approx(3.5e10).epsilon(0.01));
  // A layer starts 4 products, its element-wise operations (6 times as long) and attention: 49 us, reported
  // as those of 10 products and the microsecond that attention takes by default.
  CHECK(machine.ceilings.attention_launch == 1e-6);
  CHECK(machine.ceilings.launch == Approx(4.8e-6).epsilon(0.01));
  CHECK(*found.held_out.all < 1e-3);
}

TEST_CASE("Ceilings are shares of the base's rates, and rates above these raise them") {
  const Machine known = known_machine();
  const std::vector<Recording> recordings{recorded(small_model(), known, true),
                                          recorded(wide_model(), known, true)};
  const Calibration as_known = calibrate(recordings, known);
  CHECK(as_known.machine.matrix_rate == known.matrix_rate);
  CHECK(as_known.machine.ceilings.compute == Approx(0.5).epsilon(1e-3));
  Machine slower = known;
  slower.matrix_rate = 5e10;  // the passes reach 1e11
  const Calibration raised = calibrate(recordings, slower);
  CHECK(raised.machine.ceilings.compute == 1);
  CHECK(raised.machine.matrix_rate == Approx(1e11).epsilon(1e-3));
  CHECK(raised.machine.bandwidth == known.bandwidth);
  // A file of the machine can be read.
  CHECK_NOTHROW(parse_machine(machine_text(raised.machine), "raised"));
  // The base's own list of fits no longer applies.
  REQUIRE(raised.machine.fitted.size() >= 1);
  CHECK(raised.machine.fitted.back().measurements == "passes of traces");
}

TEST_CASE("Too few passes, or all of one length, are refused") {
  const Machine unknown = unknown_machine("mine", 1 << 30);
  Recording recording = recorded(small_model(), known_machine(), true);
  std::vector<Recording> recordings{recording};
  std::erase_if(recordings[0].passes, [](const TimedPass& pass) { return pass.decodes(); });
  CHECK_THROWS_WITH(calibrate(recordings, unknown), Catch::Contains("0 decode passes"));
  recordings[0] = recording;
  std::erase_if(recordings[0].passes, [](const TimedPass& pass) { return pass.past > 0 && !pass.decodes(); });
  recordings[0].passes.erase(recordings[0].passes.begin());
  CHECK_THROWS_WITH(calibrate(recordings, unknown), Catch::Contains("3 prefill passes"));
  for (TimedPass& pass : recordings[0].passes) {
    if (!pass.decodes()) continue;
    pass.tokens = 16;
    pass.past = 0;
  }
  recordings[0].passes.resize(3);
  CHECK_THROWS_AS(calibrate(recordings, unknown), Error);
  CHECK_THROWS_AS(calibrate({}, unknown), Error);
}

trace::Header timed_header() {
  trace::Header header;
  header.model.n_layers = 2;
  header.model.config_json =
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 100, "torch_dtype": "bfloat16"})";
  header.capture.source = "native-cpu";
  header.capture.compute_dtype = "f32";
  header.passes = {{.q_len = 8, .past_len = 0, .phase = trace::Phase::prompt, .dur_ns = 5000},
                   {.q_len = 4, .past_len = 8, .phase = trace::Phase::prompt, .dur_ns = 4000},
                   {.q_len = 1, .past_len = 12, .phase = trace::Phase::decode, .dur_ns = 1000},
                   {.q_len = 1, .past_len = 13, .phase = trace::Phase::decode, .dur_ns = 900}};
  header.attn_ns = {100, 200, 300, 400, 50, 60, 70, 80};
  return header;
}

TEST_CASE("A recording has the values of the trace's header") {
  const Recording recording = recording_of(timed_header(), "run.h5");
  REQUIRE(recording.passes.size() == 4);
  CHECK(recording.passes[1].tokens == 4);
  CHECK(recording.passes[1].past == 8);
  CHECK(recording.passes[1].seconds == Approx(4e-6));
  CHECK(recording.passes[1].attention_seconds == Approx(700e-9));  // 300 + 400
  // Logits before each chosen token: after the prompt, and after the first decode step.
  CHECK_FALSE(recording.passes[0].logits);
  CHECK(recording.passes[1].logits);
  CHECK(recording.passes[2].logits);
  CHECK_FALSE(recording.passes[3].logits);
  // Weights as in the checkpoint; activations and cache as they were computed.
  CHECK(recording.serving.runtime.weight_bits == 16);
  CHECK(recording.serving.runtime.activation_bytes == 4);
  CHECK(recording.serving.layout.storage.element_bits == 32);
}

TEST_CASE("Traces without times, or with impossible ones, are refused by name") {
  const auto refuses = [](auto damage, const char* what) {
    trace::Header header = timed_header();
    damage(header);
    CHECK_THROWS_WITH(recording_of(header, "run.h5"), Catch::Contains(what) && Catch::Contains("run.h5"));
  };
  refuses([](trace::Header& h) { h.model.config_json.clear(); }, "config.json");
  refuses([](trace::Header& h) { h.model.config_json = "{"; }, "config.json");
  refuses(
      [](trace::Header& h) {
        for (trace::Pass& p : h.passes) p.dur_ns = 0;
      },
      "no times");
  refuses([](trace::Header& h) { h.passes.clear(); }, "no times");
  refuses([](trace::Header& h) { h.passes[2].dur_ns = 0; }, "pass 2 took no time");
  refuses([](trace::Header& h) { h.attn_ns[6] = 5000; }, "attention of pass 3 took longer");
  refuses([](trace::Header& h) { h.attn_ns[0] = h.attn_ns[1] = 0; }, "attention of pass 0 took no time");
}

TEST_CASE("A relative fit: exact lines, an outlier, and parameters without effect") {
  // y = 3 x + 0.5
  std::vector<Measurement> line;
  for (int x = 1; x <= 10; ++x) line.push_back({3.0 * x + 0.5, 1});
  const Prediction predict = [](std::span<const double> p, std::span<double> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = p[0] * static_cast<double>(i + 1) + p[1];
  };
  const RelativeFit exact = fit_relative({1, 1, 7}, line, predict, 0.05, 1e-9);
  CHECK(exact.parameters[0] == Approx(3).epsilon(1e-5));
  CHECK(exact.parameters[1] == Approx(0.5).epsilon(1e-5));
  CHECK(exact.parameters[2] == Approx(7).epsilon(1e-12));
  line[9].value *= 4;
  // Beyond the knee an error counts like one of 5 %, however large: 5 % of one point in ten.
  const RelativeFit robust = fit_relative({1, 1}, line, predict, 0.05, 1e-9);
  CHECK(robust.parameters[0] == Approx(3).epsilon(0.02));
}

}  // namespace
}  // namespace kvsim::cost::test_calibration
