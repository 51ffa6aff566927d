/// The catalogue's ceilings against published timings of real kernels: how far predictions are off is stated
/// here, so a ceiling that changes must change what is stated.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "sim/cost/latency.hpp"

namespace kvsim::cost {
namespace {

struct Timing {
  std::uint64_t tokens;
  double milliseconds;
};

struct Errors {
  double mean = 0, worst = 0;  ///< absolute, relative
};

template <class Point>
Errors errors(const std::vector<Point>& points, const std::function<double(const Point&)>& predicted_ms) {
  Errors out;
  for (const Point& point : points) {
    const double error = std::abs(predicted_ms(point) / point.milliseconds - 1);
    out.mean += error / static_cast<double>(points.size());
    out.worst = std::max(out.worst, error);
  }
  return out;
}

double layer_ms(const PassTime& pass, OpClass op, const Model& model) {
  return 1e3 * pass[op].seconds / static_cast<double>(model.layers);
}

/// The four products of a layer at so many tokens.
Errors product_errors(const char* model_name, const char* machine_name, const std::vector<Timing>& timings) {
  const Model model = find_model(model_name);
  const Machine machine = find_machine(machine_name);
  Serving serving;
  serving.prompt = 1;
  return errors<Timing>(timings, [&](const Timing& timing) {
    return layer_ms(pass_time(model, machine, serving, timing.tokens, 0, false), OpClass::linear, model);
  });
}

// Vidur's profiles (medians of attention's and MLP's projections, one GPU).
const std::vector<Timing> kA100Llama3{{1, 0.276},    {16, 0.290},    {64, 0.324},   {128, 0.377},
                                      {256, 0.554},  {512, 0.994},   {1024, 2.175}, {2048, 4.072},
                                      {4096, 7.817}, {16384, 31.555}};
const std::vector<Timing> kA100Llama2{{1, 0.266},   {16, 0.263},   {64, 0.278},   {128, 0.351}, {256, 0.502},
                                      {512, 0.953}, {1024, 1.959}, {2048, 3.825}, {4096, 7.492}};
const std::vector<Timing> kH100Llama2{{1, 0.156},   {16, 0.160},   {64, 0.162},   {128, 0.180}, {256, 0.260},
                                      {512, 0.328}, {1024, 0.565}, {2048, 1.087}, {4096, 2.205}};
const std::vector<Timing> kA40Llama2{{1, 0.727},   {16, 0.750},   {64, 0.918},   {128, 0.908},  {256, 1.310},
                                     {512, 2.051}, {1024, 3.946}, {2048, 7.452}, {4096, 15.173}};
// LLMServingSim's profile of vLLM on an RTX 4090.
const std::vector<Timing> k4090Llama31{{1, 0.467},   {16, 0.482},  {64, 0.532},   {128, 0.602},
                                       {256, 0.724}, {512, 1.387}, {1024, 2.723}, {2048, 5.407}};

void check(const char* what, const Errors& errors, double mean, double worst) {
  CAPTURE(what, errors.mean, errors.worst);
  CHECK(errors.mean <= mean);
  CHECK(errors.worst <= worst);
}

}  // namespace

TEST_CASE("Matrix products of a layer are as fast as profiles of five models and devices say", "[latency]") {
  check("A100, Llama-3-8B", product_errors("llama-3-8b", "a100-80-sxm", kA100Llama3), 0.05, 0.1);
  check("A100, Llama-2-7B", product_errors("llama-2-7b", "a100-80-sxm", kA100Llama2), 0.05, 0.13);
  check("H100, Llama-2-7B", product_errors("llama-2-7b", "h100-sxm", kH100Llama2), 0.07, 0.14);
  check("A40, Llama-2-7B", product_errors("llama-2-7b", "a40", kA40Llama2), 0.04, 0.11);
  check("RTX 4090, Llama-3.1-8B", product_errors("llama-3.1-8b", "rtx-4090", k4090Llama31), 0.06, 0.21);
}

TEST_CASE("Elementwise operations are as fast as profiles say", "[latency]") {
  // Vidur's medians of both norms, rotation, activation and both residual additions.
  struct Case {
    const char *model, *machine;
    std::vector<Timing> timings;
    double mean, worst;
  };
  for (const Case& c :
       {Case{"llama-3-8b",
             "a100-80-sxm",
             {{1, 0.029},
              {64, 0.030},
              {128, 0.038},
              {256, 0.059},
              {512, 0.095},
              {1024, 0.186},
              {4096, 0.768},
              {16384, 3.091}},
             0.075,
             0.18},
        Case{
            "llama-2-7b",
            "h100-sxm",
            {{1, 0.020}, {64, 0.023}, {128, 0.021}, {256, 0.029}, {512, 0.050}, {1024, 0.099}, {4096, 0.418}},
            0.11,
            0.17},
        Case{"llama-2-7b",
             "a40",
             {{1, 0.022},
              {64, 0.023},
              {128, 0.041},
              {256, 0.090},
              {512, 0.191},
              {1024, 0.375},
              {4096, 1.4425}},
             0.16,
             0.45}}) {
    const Model model = find_model(c.model);
    const Machine machine = find_machine(c.machine);
    Serving serving;
    serving.prompt = 1;
    check(c.machine,
          errors<Timing>(c.timings,
                         [&](const Timing& timing) {
                           return layer_ms(pass_time(model, machine, serving, timing.tokens, 0, false),
                                           OpClass::elementwise, model);
                         }),
          c.mean, c.worst);
  }
}

TEST_CASE("Attention and head of the RTX 4090 are as fast as vLLM's profile says", "[latency]") {
  const Model model = find_model("llama-3.1-8b");
  const Machine machine = find_machine("rtx-4090");
  struct Decode {
    std::uint64_t sequences, context;
    double milliseconds;
  };
  const auto decode = [&](const Decode& point) {
    Serving serving;
    serving.prompt = 1;
    serving.batch = point.sequences;
    return layer_ms(pass_time(model, machine, serving, 1, point.context - 1, false), OpClass::attention,
                    model);
  };
  const std::vector<Decode> large{
      {16, 2048, 0.1718}, {32, 1024, 0.1814}, {64, 512, 0.1919}, {64, 4096, 1.185}, {256, 8192, 9.056}};
  const std::vector<Decode> small{{1, 1024, 0.0142}, {1, 2048, 0.0202}, {1, 4096, 0.0243},
                                  {1, 8192, 0.0378}, {4, 1024, 0.0361}, {16, 1024, 0.0993}};
  check("decode, beyond the cache", errors<Decode>(large, decode), 0.035, 0.08);
  check("decode, within the cache", errors<Decode>(small, decode), 0.15, 0.38);

  struct Chunk {
    std::uint64_t tokens, past;
    double milliseconds;
  };
  const std::vector<Chunk> chunks{{16, 4096, 0.1366},   {16, 16384, 0.5195},  {128, 16384, 0.5215},
                                  {256, 1024, 0.0481},  {256, 16384, 0.5258}, {512, 0, 0.0411},
                                  {512, 4096, 0.2895},  {1024, 0, 0.1082},    {1024, 4096, 0.6202},
                                  {1024, 16384, 2.001}, {2048, 0, 0.3361},    {2048, 4096, 1.304},
                                  {2048, 16384, 4.225}};
  check("prefill",
        errors<Chunk>(chunks,
                      [&](const Chunk& point) {
                        Serving serving;
                        serving.prompt = 1;
                        return layer_ms(pass_time(model, machine, serving, point.tokens, point.past, false),
                                        OpClass::attention, model);
                      }),
        0.06, 0.16);

  const std::vector<Timing> heads{{1, 1.097}, {256, 1.671}};
  check("head",
        errors<Timing>(heads,
                       [&](const Timing& timing) {
                         Serving serving;
                         serving.prompt = 1;
                         serving.batch = timing.tokens;
                         return 1e3 * pass_time(model, machine, serving, 1, 1, true)[OpClass::head].seconds;
                       }),
        0.12, 0.23);

  const std::vector<Decode> steps{
      {1, 1024, 16.71}, {1, 8192, 17.46}, {16, 2048, 22.30}, {32, 1024, 23.81}, {64, 512, 24.64}};
  check("whole steps",
        errors<Decode>(steps,
                       [&](const Decode& point) {
                         Serving serving;
                         serving.prompt = 1;
                         serving.batch = point.sequences;
                         return 1e3 *
                                pass_time(model, machine, serving, 1, point.context - 1, true).seconds();
                       }),
        0.035, 0.06);
}

TEST_CASE("A 13B model on one and two A100 is as fast as FasterTransformer was measured", "[latency]") {
  const Model model = find_model("opt-13b");
  const Machine machine = find_machine("a100-40-sxm");
  Serving serving;
  serving.prompt = 512;
  const auto prefill = [&] { return 1e3 * pass_time(model, machine, serving, 512, 0, true).seconds(); };
  const auto step = [&] { return 1e3 * pass_time(model, machine, serving, 1, 517, true).seconds(); };
  CHECK(prefill() == Approx(63.17).epsilon(0.14));
  CHECK(step() == Approx(22.0).epsilon(0.06));
  serving.tensor_parallel = 2;
  CHECK(prefill() == Approx(45.45).epsilon(0.08));
  CHECK(step() == Approx(13.5).epsilon(0.06));
}

}  // namespace kvsim::cost
