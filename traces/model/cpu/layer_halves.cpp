#include "traces/model/cpu/layer_halves.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>

#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/linear_layer.hpp"

namespace kvsim::model::cpu {
namespace {

/// A token that an expert computes, and its share of the token's sum.
struct Routed {
  std::uint64_t token = 0;
  float share = 0;
};

/// Adds the experts with the largest probabilities to `routed`, of equal ones those with the lowest numbers.
void route(const Experts& experts, std::span<const float> scores, std::uint64_t token,
           std::vector<std::vector<Routed>>& routed) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  std::vector<float> p(scores.size());
  float sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(scores[i] - largest);
  for (float& one : p) one /= sum;
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(experts.used);
  std::partial_sort(order.begin(), end, order.end(),
                    [&](std::size_t a, std::size_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
  float all = 1;
  if (experts.normalised)
    all =
        std::accumulate(order.begin(), end, 0.0F, [&](float so_far, std::size_t i) { return so_far + p[i]; });
  for (auto expert = order.begin(); expert != end; ++expert)
    routed[*expert].push_back({token, p[*expert] / all});
}

void multiply(Workers& workers, bool alike, std::initializer_list<Product> products, const float* x,
              std::uint64_t n) {
  if (!alike) return apply_linear(workers, products, x, n);
  for (const Product& product : products) apply_linear_alike(workers, *product.linear, x, n, product.y);
}

/// The gates and ups of Experts::limit.
void limited_swiglu(const Experts& experts, std::span<float> gates, std::span<const float> ups) {
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const float gate = std::min(gates[i], experts.limit);
    const float up = std::clamp(ups[i], -experts.limit, experts.limit);
    gates[i] = (up + 1) * gate / (1 + std::exp(-experts.gain * gate));
  }
}

/// out [n, hidden] = down(act(gate(x)) * up(x)).
void gated(Workers& workers, const ModelConfig& config, const GatedMlp& mlp, bool alike, const float* x,
           std::uint64_t n, float* out, FeedForwardSpace& space) {
  space.gate.resize(n * mlp.gate.out);
  space.up.resize(n * mlp.up.out);
  multiply(workers, alike, {{&mlp.gate, space.gate.data()}, {&mlp.up, space.up.data()}}, x, n);
  if (config.experts.limit != 0)
    limited_swiglu(config.experts, space.gate, space.up);
  else
    (config.gelu ? geglu : swiglu)(workers, space.gate.data(), space.up.data(), space.gate.size());
  multiply(workers, alike, {{&mlp.down, out}}, space.gate.data(), n);
}

void apply_experts(Workers& workers, const ModelConfig& config, const ExpertWeights& weights, bool alike,
                   std::uint64_t n, std::vector<float>& x, FeedForwardSpace& space) {
  const std::uint64_t width = config.hidden_size, count = weights.experts.size();
  space.scores.resize(n * count);
  multiply(workers, alike, {{&weights.router, space.scores.data()}}, x.data(), n);
  std::vector<std::vector<Routed>> routed(count);
  for (std::uint64_t token = 0; token < n; ++token)
    route(config.experts, std::span(space.scores).subspan(token * count, count), token, routed);
  std::vector<float> sum(n * width, 0.0F);
  for (std::uint64_t expert = 0; expert < count; ++expert) {
    const std::vector<Routed>& tokens = routed[expert];
    if (tokens.empty()) continue;
    space.rows.resize(tokens.size() * width);
    space.out.resize(tokens.size() * width);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      std::copy_n(x.data() + tokens[i].token * width, width, space.rows.data() + i * width);
    gated(workers, config, weights.experts[expert], alike, space.rows.data(), tokens.size(), space.out.data(),
          space);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      for (std::uint64_t j = 0; j < width; ++j)
        sum[tokens[i].token * width + j] += tokens[i].share * space.out[i * width + j];
  }
  if (weights.shared) {
    space.out.resize(n * width);
    gated(workers, config, *weights.shared, alike, x.data(), n, space.out.data(), space);
    space.scores.resize(n);
    multiply(workers, alike, {{&weights.shared_gate, space.scores.data()}}, x.data(), n);
    for (std::uint64_t token = 0; token < n; ++token) {
      const float share = 1 / (1 + std::exp(-space.scores[token]));
      for (std::uint64_t j = 0; j < width; ++j)
        sum[token * width + j] += share * space.out[token * width + j];
    }
  }
  x.swap(sum);
}

}  // namespace

void apply_norm(Workers& workers, const ModelConfig& config, const float* x, std::uint64_t n,
                std::span<const float> weight, float* y) {
  (config.centred_norms ? layer_norm : rms_norm)(workers, x, n, weight, static_cast<float>(config.norm_eps),
                                                 y);
}

void enter_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                const std::vector<float>& hidden, std::uint64_t n, std::vector<float>& x) {
  x.resize(hidden.size());
  if (norm.empty())
    std::copy(hidden.begin(), hidden.end(), x.begin());
  else
    apply_norm(workers, config, hidden.data(), n, norm, x.data());
}

void leave_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                std::vector<float>& x, std::uint64_t n, std::vector<float>& hidden) {
  if (!norm.empty()) apply_norm(workers, config, x.data(), n, norm, x.data());
  if (config.residual_scale != 1)
    for (float& one : x) one *= config.residual_scale;
  add_to(workers, hidden.data(), x.data(), hidden.size());
}

void finish_logits(const ModelConfig& config, std::span<float> logits) {
  if (config.logit_divisor != 1)
    for (float& logit : logits) logit /= config.logit_divisor;
  const auto cap = static_cast<float>(config.logit_cap);
  if (cap != 0)
    for (float& logit : logits) logit = cap * std::tanh(logit / cap);
}

void feed_forward(Workers& workers, const ModelConfig& config, const LayerWeights& layer, bool alike,
                  std::uint64_t n, std::vector<float>& x, FeedForwardSpace& space) {
  if (layer.experts) return apply_experts(workers, config, *layer.experts, alike, n, x, space);
  gated(workers, config, layer, alike, x.data(), n, x.data(), space);
}

}  // namespace kvsim::model::cpu
