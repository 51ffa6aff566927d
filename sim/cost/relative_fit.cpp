#include "sim/cost/relative_fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::cost {
namespace {

using Vector = std::vector<double>;

class Search {
 public:
  Search(std::span<const double> start, std::span<const Measurement> measured, const Prediction& predict,
         double knee, double hold)
      : measured_(measured), predict_(predict), knee_(knee), hold_(hold) {
    for (const double value : start) start_.push_back(std::log(value));
  }

  RelativeFit run() {
    constexpr int kMaxSteps = 200;
    constexpr double kConverged = 1e-14;
    Vector at = start_, residuals = residuals_at(at);
    double loss = loss_of(at, residuals);
    double damping = 1e-3;
    for (int step = 0; step < kMaxSteps; ++step) {
      const Normal normal = normal_at(at, residuals);
      bool better = false;
      double gain = 0;
      for (; damping < 1e12 && !better; damping *= better ? 0.25 : 4) {
        const Vector next = moved(at, normal, damping);
        const Vector next_residuals = residuals_at(next);
        const double next_loss = loss_of(next, next_residuals);
        better = next_loss < loss;  // false for NaN
        if (!better) continue;
        gain = loss - next_loss;
        at = next;
        residuals = next_residuals;
        loss = next_loss;
      }
      if (!better || gain < kConverged * loss) break;
    }
    for (double& value : at) value = std::exp(value);
    return {at, loss};
  }

 private:
  /// Half the gradient of the loss, and its Gauss-Newton curvature.
  struct Normal {
    Vector gradient, curvature;
  };

  Vector residuals_at(const Vector& at) const {
    Vector parameters(at), predicted(measured_.size());
    for (double& value : parameters) value = std::exp(value);
    predict_(parameters, predicted);
    for (std::size_t i = 0; i < predicted.size(); ++i)
      predicted[i] = std::log(predicted[i] / measured_[i].value);
    return predicted;
  }

  double loss_of(const Vector& at, const Vector& residuals) const {
    double loss = 0;
    for (std::size_t i = 0; i < residuals.size(); ++i) {
      const double size = std::abs(residuals[i]);
      loss += measured_[i].weight * (size <= knee_ ? size * size : knee_ * (2 * size - knee_));
    }
    for (std::size_t p = 0; p < at.size(); ++p) loss += hold_ * (at[p] - start_[p]) * (at[p] - start_[p]);
    return loss;
  }

  Normal normal_at(const Vector& at, const Vector& residuals) const {
    constexpr double kStep = 1e-6;
    const std::size_t n = at.size();
    std::vector<Vector> slopes;
    for (std::size_t p = 0; p < n; ++p) {
      Vector ahead = at, behind = at;
      ahead[p] += kStep;
      behind[p] -= kStep;
      slopes.push_back(residuals_at(ahead));
      const Vector from = residuals_at(behind);
      for (std::size_t i = 0; i < from.size(); ++i) slopes[p][i] = (slopes[p][i] - from[i]) / (2 * kStep);
    }
    Normal normal{Vector(n), Vector(n * n)};
    for (std::size_t i = 0; i < residuals.size(); ++i) {
      const double weight =
          measured_[i].weight * std::min(1.0, knee_ / std::max(std::abs(residuals[i]), knee_));
      for (std::size_t p = 0; p < n; ++p) {
        normal.gradient[p] += weight * slopes[p][i] * residuals[i];
        for (std::size_t q = 0; q < n; ++q)
          normal.curvature[p * n + q] += weight * slopes[p][i] * slopes[q][i];
      }
    }
    for (std::size_t p = 0; p < n; ++p) {
      normal.gradient[p] += hold_ * (at[p] - start_[p]);
      normal.curvature[p * n + p] += hold_;
    }
    return normal;
  }

  static Vector moved(const Vector& at, const Normal& normal, double damping) {
    constexpr double kLongest = 1;  // no parameter changes by more than a factor of e at once
    const std::size_t n = at.size();
    Vector damped = normal.curvature;
    for (std::size_t p = 0; p < n; ++p) damped[p * n + p] *= 1 + damping;
    Vector step = normal.gradient;
    cholesky_solve(cholesky_factor(damped, n, std::numeric_limits<double>::min()), n, step);
    Vector next = at;
    for (std::size_t p = 0; p < n; ++p) next[p] -= std::clamp(step[p], -kLongest, kLongest);
    return next;
  }

  std::span<const Measurement> measured_;
  const Prediction& predict_;
  double knee_, hold_;
  Vector start_{};
};

}  // namespace

RelativeFit fit_relative(std::vector<double> start, std::span<const Measurement> measured,
                         const Prediction& predict, double knee, double hold) {
  return Search(start, measured, predict, knee, hold).run();
}

}  // namespace kvsim::cost
