#include "sim/loop/token_measures.hpp"

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

}  // namespace kvsim::sim
