#pragma once
/// Fits positive parameters of a positive function by relative error.
#include <functional>
#include <span>
#include <vector>

namespace kvsim::cost {

struct Measurement {
  double value = 0;   ///< above 0
  double weight = 0;  ///< of its squared relative error
};

struct RelativeFit {
  std::vector<double> parameters{};
  double loss = 0;
};

/// Predicts every measurement, in their order, from parameters.
using Prediction = std::function<void(std::span<const double> parameters, std::span<double> predicted)>;

/// Minimises the weighted sum of Huber losses of log(predicted / measured), quadratic up to `knee`, plus
/// `hold` times the squared log distance of each parameter from its start, by Levenberg-Marquardt on the
/// parameters' logarithms.
RelativeFit fit_relative(std::vector<double> start, std::span<const Measurement> measured,
                         const Prediction& predict, double knee, double hold);

}  // namespace kvsim::cost
