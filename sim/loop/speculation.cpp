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

std::optional<std::int32_t> in_place_of(std::int32_t token, std::span<const double> p,
                                        std::span<const double> q, const std::function<double()>& draw,
                                        std::span<const double> r) {
  if (r.empty()) r = p;
  const auto x = static_cast<std::size_t>(token);
  if (draw() * q[x] < r[x]) return {};
  std::vector<double> rest(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) rest[i] = std::max(p[i] - std::min(q[i], r[i]), 0.0);
  return drawn(rest, draw());
}

std::vector<double> led_by(std::span<const double> q, std::span<const float> logits, double temperature,
                           double eta) {
  std::vector<double> out = probabilities(logits, temperature);
  const double least = 0.1 * *std::ranges::max_element(q);
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (q[i] >= least) out[i] *= std::exp(eta * (q[i] - out[i]));
    sum += out[i];
  }
  for (double& p : out) p /= sum;
  return out;
}

Verdict verify_drafted(std::span<const std::int32_t> tokens, std::span<const std::vector<double>> p,
                       std::span<const std::vector<double>> q, const std::function<double()>& draw,
                       std::span<const std::vector<double>> r) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (const auto other =
            in_place_of(tokens[i], p[i], q[i], draw, r.empty() ? std::span<const double>{} : r[i]))
      return {i, *other};
  return {tokens.size(), drawn(p[tokens.size()], draw())};
}

}  // namespace kvsim::sim
