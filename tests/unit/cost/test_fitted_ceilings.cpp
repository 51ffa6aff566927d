// The catalogue's fitted ceilings follow from a fit to every second published timing, so the fit never saw
// the timings that validation calls held out.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "sim/cost/latency.hpp"
#include "sim/cost/relative_fit.hpp"
#include "tests/validation/attention_timings.hpp"
#include "tests/validation/layer_timings.hpp"

namespace kvsim::cost::test_fitted_ceilings {
namespace {

/// Returns a machine's time for one published time, in its unit.
struct Point {
  std::function<double(const Machine&)> predicted;
  double published;
};
using Parameters = std::vector<double Ceilings::*>;

/// The machine with those ceilings fitted to all points that are not held out, and the error of the fit.
struct Fitted {
  Machine machine;
  double loss;
};
Fitted fit(const Machine& machine, const Parameters& parameters, const std::vector<Point>& points) {
  std::vector<Point> seen;
  std::vector<Measurement> measured;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (held_out(i)) continue;
    seen.push_back(points[i]);
    measured.push_back({points[i].published, 1});
  }
  std::vector<double> start;
  for (const auto parameter : parameters) start.push_back(Ceilings{}.*parameter);
  const auto with = [&](std::span<const double> values) {
    Machine tried = machine;
    for (std::size_t i = 0; i < parameters.size(); ++i) tried.ceilings.*parameters[i] = values[i];
    return tried;
  };
  const RelativeFit found = fit_relative(
      start, measured,
      [&](std::span<const double> values, std::span<double> predicted) {
        const Machine tried = with(values);
        for (std::size_t i = 0; i < seen.size(); ++i) predicted[i] = seen[i].predicted(tried);
      },
      kFitKnee, kFitHold);
  return {with(found.parameters), found.loss};
}

void add_products(std::vector<Point>& points, const char* model_name, std::span<const LayerTiming> timings) {
  const Model model = find_model(model_name);
  for (const LayerTiming& timing : timings)
    points.push_back(
        {[model, timing](const Machine& machine) { return products_ms(model, machine, timing.tokens); },
         static_cast<double>(timing.milliseconds)});
}

/// The file has two digits.
void check_share(double fitted, double file) {
  CHECK(file == Approx(std::round(100 * fitted) / 100).margin(1e-12));
}

double attention_us(const Model& model, const PassTime& pass) {
  return 1e6 * pass[OpClass::attention].seconds / static_cast<double>(model.layers);
}

}  // namespace

TEST_CASE("compute and memory of a machine are fitted to every second of its products") {
  struct Case {
    const char* machine;
    std::vector<std::pair<const char*, std::span<const LayerTiming>>> timings;
  };
  for (const Case& c :
       {Case{"a100-80-sxm", {{"llama-2-7b", a100_llama_2_7b()}, {"llama-3-8b", a100_llama_3_8b()}}},
        Case{"h100-sxm", {{"llama-2-7b", h100_llama_2_7b()}}},
        Case{"a40", {{"llama-2-7b", a40_llama_2_7b()}}},
        Case{"rtx-4090", {{"llama-3.1-8b", rtx_4090_llama_3_1_8b()}}}}) {
    INFO(c.machine);
    const Machine machine = find_machine(c.machine);
    // Each model's timings start with a fitted one: after an odd number of timings one place is skipped as
    // held out.
    std::vector<Point> points;
    for (const auto& [model, timings] : c.timings) {
      add_products(points, model, timings);
      if (points.size() % 2 == 1) points.push_back({});
    }
    const Fitted fitted = fit(machine, {&Ceilings::compute, &Ceilings::memory}, points);
    check_share(fitted.machine.ceilings.compute, machine.ceilings.compute);
    check_share(fitted.machine.ceilings.memory, machine.ceilings.memory);
  }
}

TEST_CASE("the norm of an H100 is the best of a few for the products its ceilings are fitted to") {
  const Machine machine = find_machine("h100-sxm");
  std::vector<Point> points;
  add_products(points, "llama-2-7b", h100_llama_2_7b());
  const auto loss = [&](double norm) {
    Machine tried = machine;
    tried.ceilings.norm = norm;
    return fit(tried, {&Ceilings::compute, &Ceilings::memory}, points).loss;
  };
  for (const double other : {1.0, 2.0, 3.0, 8.0}) CHECK(loss(machine.ceilings.norm) < loss(other));
}

TEST_CASE("attention ceilings of the RTX 4090 are fitted to every second of its attention times") {
  const Model model = find_model("llama-3.1-8b");
  const Machine machine = find_machine("rtx-4090");
  std::vector<Point> decode, prefill;
  for (const AttentionTiming& row : rtx_4090_decode_attention())
    decode.push_back({[&model, row](const Machine& tried) {
                        return attention_us(
                            model, pass_time(model, tried, serve(1, 1, row.count), 1, row.tokens - 1U, true));
                      },
                      static_cast<double>(row.microseconds)});
  for (const AttentionTiming& row : rtx_4090_prefill_attention())
    prefill.push_back({[&model, row](const Machine& tried) {
                         return attention_us(model, pass_time(model, tried, serve(row.count, 1, 1), row.count,
                                                              row.tokens, false));
                       },
                       static_cast<double>(row.microseconds)});
  const Ceilings steps =
      fit(machine, {&Ceilings::attention_memory, &Ceilings::attention_launch, &Ceilings::attention_sequence},
          decode)
          .machine.ceilings;
  check_share(steps.attention_memory, machine.ceilings.attention_memory);
  CHECK(machine.ceilings.attention_launch == Approx(1e-6 * std::round(1e6 * steps.attention_launch)));
  CHECK(machine.ceilings.attention_sequence == Approx(1e-7 * std::round(1e7 * steps.attention_sequence)));

  const Fitted chunks = fit(machine, {&Ceilings::attention_compute}, prefill);
  check_share(chunks.machine.ceilings.attention_compute, machine.ceilings.attention_compute);
  for (const std::uint64_t rows : {64, 128, 512}) {
    Machine tried = machine;
    tried.ceilings.attention_rows = rows;
    CHECK(chunks.loss < fit(tried, {&Ceilings::attention_compute}, prefill).loss);
  }
}

TEST_CASE("ceilings of the M2 Pro are fitted to the first, third and fifth time of llama.cpp") {
  constexpr double kQ4 = 4.5;
  const Model small = find_model("llama-2-7b"), large = find_model("llama-2-13b");
  const auto token = [](const Model& model, double bits) {
    return [&model, bits](const Machine& machine) {
      Serving serving = serve(1, 128, 1);
      serving.runtime.weight_bits = bits;
      const PassTime step = latency(model, machine, serving, evenly(model, model.kv_heads, 1), {}).mean_step;
      return 1e3 * (step.seconds() - (1 - bits / 16) * step[OpClass::head].seconds);
    };
  };
  const auto prompt = [](const Model& model, double bits) {
    return [&model, bits](const Machine& machine) {
      Serving serving = serve(512, 1, 1);
      serving.runtime.weight_bits = bits;
      return 1e3 * prefill_time(model, machine, serving, evenly(model, model.kv_heads, 512), {}).seconds() /
             512;
    };
  };
  const std::vector<Point> points{{token(small, 16), 92.2},   {token(small, kQ4), 28.9},
                                  {token(large, kQ4), 50.7},  {prompt(small, 16), 5.55},
                                  {prompt(small, kQ4), 5.90}, {prompt(large, kQ4), 10.3}};
  const Machine machine = find_machine("m2-pro");
  const Ceilings fitted = fit(machine, {&Ceilings::compute, &Ceilings::memory}, points).machine.ceilings;
  check_share(fitted.compute, machine.ceilings.compute);
  check_share(fitted.memory, machine.ceilings.memory);
}

TEST_CASE("machines that adopt another's fitted ceilings have the same") {
  for (const auto& [own, other] : {std::pair{"a100-40-sxm", "a100-80-sxm"}, std::pair{"h200-sxm", "h100-sxm"},
                                   std::pair{"rtx-a6000", "a40"}}) {
    INFO(own);
    const Machine a = find_machine(own), b = find_machine(other);
    CHECK(a.ceilings.compute == b.ceilings.compute);
    CHECK(a.ceilings.memory == b.ceilings.memory);
    CHECK(a.ceilings.norm == b.ceilings.norm);
    CHECK(a.ceilings.elementwise_memory == b.ceilings.elementwise_memory);
    CHECK(a.ceilings.elementwise_launch == b.ceilings.elementwise_launch);
  }
}

}  // namespace kvsim::cost::test_fitted_ceilings
