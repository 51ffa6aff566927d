#include "sim/loop/speculation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "traces/model/sampling.hpp"

namespace kvsim::sim {

std::vector<double> probabilities(std::span<const float> logits, double temperature) {
  std::vector<double> out(logits.size());
  if (temperature == 0) {
    out[static_cast<std::size_t>(model::choose_token(logits, {}, 0))] = 1;
    return out;
  }
  const double largest = double{*std::ranges::max_element(logits)};
  std::ranges::transform(logits, out.begin(),
                         [&](float logit) { return std::exp((double{logit} - largest) / temperature); });
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& p : out) p /= sum;
  return out;
}

double overlap(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::min(p[i], q[i]);
  return sum;
}

std::int32_t drawn(std::span<const double> weights, double u) {
  const double wanted = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  std::size_t last = 0;  // where rounding has made u times the total the total
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if ((sum += weights[i]) > wanted) break;
  }
  return static_cast<std::int32_t>(last);
}

Verdict verify_drafted(std::span<const std::int32_t> tokens, std::span<const std::vector<double>> p,
                       std::span<const std::vector<double>> q, const std::function<double()>& draw) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto x = static_cast<std::size_t>(tokens[i]);
    if (draw() * q[i][x] < p[i][x]) continue;
    std::vector<double> rest(p[i].size());
    std::ranges::transform(p[i], q[i], rest.begin(), [](double a, double b) { return std::max(a - b, 0.0); });
    return {i, drawn(rest, draw())};
  }
  return {tokens.size(), drawn(p[tokens.size()], draw())};
}

}  // namespace kvsim::sim
