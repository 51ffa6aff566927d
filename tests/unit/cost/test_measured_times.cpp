/// Elementwise operations by the catalogue's ceilings against the published timings that these were fitted
/// to: their errors are stated here, so a changed ceiling must change the stated errors. All other timings
/// are entries of validation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "sim/cost/latency.hpp"

namespace kvsim::cost::test_measured_times {
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

void check(const char* what, const Errors& errors, double mean, double worst) {
  CAPTURE(what, errors.mean, errors.worst);
  CHECK(errors.mean <= mean);
  CHECK(errors.worst <= worst);
}

}  // namespace

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

}  // namespace kvsim::cost::test_measured_times
