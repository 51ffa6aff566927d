#include "sim/loop/cell_drift.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "traces/model/sampling.hpp"

namespace kvsim::sim {
namespace {

struct Normaliser {
  explicit Normaliser(std::span<const float> logits)
      : largest(*std::max_element(logits.begin(), logits.end())) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    log_sum = std::log(sum);
  }
  double log_p(float logit) const { return static_cast<double>(logit) - largest - log_sum; }
  double largest, log_sum = 0;
};

}  // namespace

TokenMeasures measure_token(std::span<const float> full, std::span<const float> cell, std::int32_t token) {
  const Normaliser of_full(full), of_cell(cell);
  const auto id = static_cast<std::size_t>(token);
  TokenMeasures out;
  double kl = 0;
  for (std::size_t i = 0; i < full.size(); ++i) {
    const double log_p = of_full.log_p(full[i]);
    kl += std::exp(log_p) * (log_p - of_cell.log_p(cell[i]));
    if (cell[i] > cell[id]) ++out.rank;
  }
  out.kl = std::max(kl, 0.0);
  out.log_p = of_cell.log_p(cell[id]);
  out.log_p_full = of_full.log_p(full[id]);
  out.same_top = model::choose_token(full, {}, 0) == model::choose_token(cell, {}, 0);
  return out;
}

double margin(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity(), next = best;
  for (const float logit : logits) {
    if (logit > best) {
      next = best;
      best = logit;
    } else {
      next = std::max(next, logit);
    }
  }
  return static_cast<double>(best) - next;
}

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
