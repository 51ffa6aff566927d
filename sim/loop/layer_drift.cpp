#include "sim/loop/layer_drift.hpp"

#include <cmath>

namespace kvsim::sim {
namespace {

struct Products {
  double full = 0, cell = 0, both = 0, difference = 0;

  void add(std::span<const float> a, std::span<const float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = a[i], y = b[i];
      full += x * x;
      cell += y * y;
      both += x * y;
      difference += (y - x) * (y - x);
    }
  }
  /// 0 / 0 is no difference.
  double relative() const { return difference == 0 ? 0 : std::sqrt(difference / full); }
  double cosine() const { return difference == 0 ? 1 : both / std::sqrt(full * cell); }
};

}  // namespace

void DriftMean::add_queries(MatrixView full, MatrixView cell) {
  Products products;
  for (std::size_t head = 0; head < full.rows; ++head) products.add(full.row(head), cell.row(head));
  sum_.query_l2 += products.relative();
}

void DriftMean::add_residual(std::span<const float> full, std::span<const float> cell) {
  Products products;
  products.add(full, cell);
  sum_.residual_l2 += products.relative();
  sum_.residual_cosine += products.cosine();
  ++steps_;
}

LayerDrift DriftMean::mean() const {
  const auto n = static_cast<double>(steps_);
  return {sum_.residual_l2 / n, sum_.residual_cosine / n, sum_.query_l2 / n};
}

}  // namespace kvsim::sim
