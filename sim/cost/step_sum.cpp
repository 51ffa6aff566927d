#include "sim/cost/step_sum.hpp"

#include <algorithm>
#include <cmath>

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kShort = 8;  ///< steps that are added up one by one
constexpr double kTolerance = 1e-5;  ///< relative, of a step's time

using StepPass = std::function<PassTime(std::uint64_t)>;

/// The quadratic through the values at 0, `middle` and `end`.
struct Quadratic {
  double middle, end;

  struct Weights {
    double first, middle, last;
  };
  /// Returns the weights of the three values in the quadratic's value at x.
  Weights at(double x) const {
    return {(x - middle) * (x - end) / (middle * end), x * (x - end) / (middle * (middle - end)),
            x * (x - middle) / (end * (end - middle))};
  }
  /// Returns their weights in its sum over 0, 1, ..., end.
  Weights sum() const {
    const double n = end + 1, x = end * (end + 1) / 2, squares = end * (end + 1) * (2 * end + 1) / 6;
    return {(squares - (middle + end) * x + middle * end * n) / (middle * end),
            (squares - end * x) / (middle * (middle - end)), (squares - middle * x) / (end * (end - middle))};
  }
};

std::uint64_t share_of_piece(std::uint64_t end, double share) {
  return static_cast<std::uint64_t>(share * static_cast<double>(end));
}

void add_piece(PassTime& sum, std::uint64_t first, std::uint64_t last, const StepPass& pass) {
  const std::uint64_t end = last - first, middle = end / 2;
  if (end < kShort) {
    for (std::uint64_t step = first; step <= last; ++step) add(sum, pass(step), 1);
    return;
  }
  const PassTime a = pass(first), b = pass(first + middle), c = pass(last);
  const Quadratic quadratic{static_cast<double>(middle), static_cast<double>(end)};
  // The last two fall on no simple fraction of the piece: steps that repeat, as full windows do, would look
  // smooth at quarters that are whole numbers of periods.
  for (const std::uint64_t between : {end / 4, end - end / 4, share_of_piece(end, 0.3819660112501051),
                                      share_of_piece(end, 0.7082039324993691)}) {
    const auto weights = quadratic.at(static_cast<double>(between));
    const double guess =
        weights.first * a.seconds() + weights.middle * b.seconds() + weights.last * c.seconds();
    const double true_time = pass(first + between).seconds();
    if (std::abs(guess - true_time) <= kTolerance * true_time) continue;
    add_piece(sum, first, first + middle, pass);
    add_piece(sum, first + middle + 1, last, pass);
    return;
  }
  const auto weights = quadratic.sum();
  add(sum, a, weights.first);
  add(sum, b, weights.middle);
  add(sum, c, weights.last);
}

}  // namespace

PassTime sum_steps(std::uint64_t first, std::uint64_t last, std::vector<std::uint64_t> breaks,
                   const StepPass& pass) {
  PassTime sum;
  if (first > last) return sum;
  std::sort(breaks.begin(), breaks.end());
  breaks.erase(std::unique(breaks.begin(), breaks.end()), breaks.end());
  for (const std::uint64_t end : breaks) {
    if (end < first || end >= last) continue;
    add_piece(sum, first, end, pass);
    first = end + 1;
  }
  add_piece(sum, first, last, pass);
  return sum;
}

}  // namespace kvsim::cost
