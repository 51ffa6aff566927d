#include "traces/model/cpu/layer_halves.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/order.hpp"
#include "traces/model/cpu/linear_layer.hpp"

namespace kvsim::model::cpu {
namespace {

/// A token that an expert computes, and its share of the token's sum.
struct Routed {
  std::uint64_t token = 0;
  float share = 0;
};

/// Leaves the best groups their scores; an expert of another gets `none`.
void choose_groups(const Experts& experts, std::span<float> scores, float none) {
  const std::size_t size = scores.size() / experts.groups;
  std::vector<float> best(experts.groups);
  for (std::size_t group = 0; group < experts.groups; ++group) {
    std::vector<float> of_group(scores.begin() + static_cast<std::ptrdiff_t>(group * size),
                                scores.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::sort(of_group.rbegin(), of_group.rend());
    best[group] = of_group[0] + (experts.corrected && size > 1 ? of_group[1] : 0);
  }
  const std::vector<std::size_t> order = largest_first(best);
  for (std::size_t i = experts.used_groups; i < order.size(); ++i)
    std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(order[i] * size), size, none);
}

/// Turns a router's products into the scores that shares are made of.
void score_experts(const Experts& experts, std::span<float> scores) {
  if (experts.corrected || experts.scaled_inputs) {
    for (float& one : scores) one = 1 / (1 + std::exp(-one));
    return;
  }
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& one : scores) sum += one = std::exp(one - largest);
  for (float& one : scores) one /= sum;
}

/// Adds the experts with the largest scores to `routed`, of equal ones those with the lowest numbers.
void route(const Experts& experts, std::span<const float> correction, std::span<const float> products,
           std::uint64_t token, std::vector<std::vector<Routed>>& routed) {
  std::vector<float> p(products.begin(), products.end());
  score_experts(experts, p);
  // Sigmoids of large products are alike.
  std::vector<float> chosen_by = experts.scaled_inputs ? std::vector(products.begin(), products.end()) : p;
  for (std::size_t i = 0; i < correction.size(); ++i) chosen_by[i] += correction[i];
  if (experts.groups > 0)
    choose_groups(experts, chosen_by, experts.corrected ? -std::numeric_limits<float>::infinity() : 0.0F);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(experts.used);
  std::partial_sort(order.begin(), end, order.end(), [&](std::size_t a, std::size_t b) {
    return chosen_by[a] > chosen_by[b] || (chosen_by[a] == chosen_by[b] && a < b);
  });
  float all = 1;
  if (experts.normalised)
    all =
        std::accumulate(order.begin(), end, 0.0F, [&](float so_far, std::size_t i) { return so_far + p[i]; });
  for (auto expert = order.begin(); expert != end; ++expert)
    routed[*expert].push_back({token, p[*expert] / all * experts.scale});
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

/// gate = act(gate) * up, or act(gate) where it is `plain`.
void pass_gates(Workers& workers, const ModelConfig& config, FeedForwardSpace& space, bool plain) {
  if (config.experts.limit != 0)
    limited_swiglu(config.experts, space.gate, space.up);
  else
    activate(workers, config.activation, space.gate.data(), plain ? nullptr : space.up.data(),
             space.gate.size());
}

/// out [n, hidden] = down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.
void gated(Workers& workers, const ModelConfig& config, const GatedMlp& mlp, bool alike, const float* x,
           std::uint64_t n, float* out, FeedForwardSpace& space) {
  space.gate.resize(n * mlp.up.out);
  space.up.resize(n * mlp.up.out);
  const bool plain = mlp.gate.out == 0;
  if (plain)
    multiply(workers, alike, {{&mlp.up, space.gate.data()}}, x, n);
  else
    multiply(workers, alike, {{&mlp.gate, space.gate.data()}, {&mlp.up, space.up.data()}}, x, n);
  pass_gates(workers, config, space, plain);
  multiply(workers, alike, {{&mlp.down, out}}, space.gate.data(), n);
}

/// gated() of one token by each of its experts, all at once: x and out [used, hidden].
void gated_of_one(Workers& workers, const ModelConfig& config, const ExpertWeights& weights,
                  std::span<const std::uint64_t> used, const float* x, float* out, FeedForwardSpace& space) {
  const std::uint64_t hidden = config.hidden_size, width = config.experts.width;
  space.gate.resize(used.size() * width);
  space.up.resize(used.size() * width);
  std::vector<Product> in, down;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const GatedMlp& expert = weights.experts[used[i]];
    float* gates = space.gate.data() + i * width;
    in.push_back({&expert.gate, gates, x + i * hidden});
    in.push_back({&expert.up, space.up.data() + i * width, x + i * hidden});
    down.push_back({&expert.down, out + i * hidden, gates});
  }
  apply_linear(workers, in, nullptr, 1);
  pass_gates(workers, config, space, false);
  apply_linear(workers, down, nullptr, 1);
}

void apply_experts(Workers& workers, const ModelConfig& config, const ExpertWeights& weights, bool alike,
                   std::uint64_t n, std::vector<float>& x, FeedForwardSpace& space) {
  const std::uint64_t width = config.hidden_size, count = weights.experts.size();
  space.scores.resize(n * count);
  multiply(workers, alike, {{&weights.router, space.scores.data()}}, x.data(), n);
  std::vector<std::vector<Routed>> routed(count);
  for (std::uint64_t token = 0; token < n; ++token)
    route(config.experts, weights.correction, std::span(space.scores).subspan(token * count, count), token,
          routed);
  std::vector<float> sum(n * width, 0.0F);
  const auto read = [&](const std::vector<Routed>& tokens, std::size_t first) {
    space.rows.resize((first + tokens.size()) * width);
    space.out.resize(space.rows.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      std::transform(x.data() + tokens[i].token * width, x.data() + (tokens[i].token + 1) * width,
                     space.rows.data() + (first + i) * width,
                     [&](float one) { return config.experts.scaled_inputs ? tokens[i].share * one : one; });
  };
  const auto add = [&](const std::vector<Routed>& tokens, std::size_t first) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const float share = config.experts.scaled_inputs ? 1 : tokens[i].share;
      for (std::uint64_t j = 0; j < width; ++j)
        sum[tokens[i].token * width + j] += share * space.out[(first + i) * width + j];
    }
  };
  std::vector<std::uint64_t> used;
  for (std::uint64_t expert = 0; expert < count; ++expert)
    if (!routed[expert].empty()) used.push_back(expert);
  if (n == 1 && !alike) {
    for (std::size_t i = 0; i < used.size(); ++i) read(routed[used[i]], i);
    gated_of_one(workers, config, weights, used, space.rows.data(), space.out.data(), space);
    for (std::size_t i = 0; i < used.size(); ++i) add(routed[used[i]], i);
  } else {
    for (const std::uint64_t expert : used) {
      read(routed[expert], 0);
      gated(workers, config, weights.experts[expert], alike, space.rows.data(), routed[expert].size(),
            space.out.data(), space);
      add(routed[expert], 0);
    }
  }
  if (weights.shared) {
    space.out.resize(n * width);
    gated(workers, config, *weights.shared, alike, x.data(), n, space.out.data(), space);
    const bool gated_shared = weights.shared_gate.out > 0;
    space.scores.resize(n);
    if (gated_shared) multiply(workers, alike, {{&weights.shared_gate, space.scores.data()}}, x.data(), n);
    for (std::uint64_t token = 0; token < n; ++token) {
      const float share = gated_shared ? 1 / (1 + std::exp(-space.scores[token])) : 1;
      for (std::uint64_t j = 0; j < width; ++j)
        sum[token * width + j] += share * space.out[token * width + j];
    }
  }
  x.swap(sum);
}

}  // namespace

void embed_token(const ModelConfig& config, const Weights& weights, std::int32_t token,
                 std::uint64_t position, float* to) {
  std::vector<float> scratch;
  const std::uint64_t width = config.hidden_size;
  const float* from = weights.embedding.rows(static_cast<std::uint64_t>(token), 1, scratch);
  std::transform(from, from + width, to, [&](float x) { return config.embedding_scale * x; });
  if (config.learned_positions == 0) return;
  constexpr std::uint64_t kFirst = 2;  // OPT's rows before are of no position
  if (position + kFirst >= config.learned_positions)
    usage_error("position " + std::to_string(position) + " is beyond the " +
                std::to_string(config.learned_positions - kFirst) + " that the model has learned");
  from = weights.positions.rows(position + kFirst, 1, scratch);
  std::transform(from, from + width, to, to, std::plus<>());
}

void apply_norm(Workers& workers, const ModelConfig& config, const float* x, std::uint64_t n,
                std::span<const float> weight, float* y) {
  const auto eps = static_cast<float>(config.norm_eps);
  if (weight.empty())
    std::copy_n(x, y == x ? 0 : n * config.hidden_size, y);
  else if (config.centred_norms)
    layer_norm(workers, x, n, weight.first(config.hidden_size), weight.subspan(config.hidden_size), eps, y);
  else
    rms_norm(workers, x, n, weight, eps, y);
}

void enter_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                const std::vector<float>& hidden, std::uint64_t n, std::vector<float>& x) {
  x.resize(hidden.size());
  apply_norm(workers, config, hidden.data(), n, norm, x.data());
}

void enter_halves(Workers& workers, const ModelConfig& config, const LayerWeights& layer,
                  const std::vector<float>& hidden, std::uint64_t n, std::vector<float>& x,
                  std::vector<float>& entered) {
  enter_half(workers, config, layer.attention_norm, hidden, n, x);
  if (!config.parallel) return;
  if (config.norms[2] == nullptr)
    entered = x;
  else
    enter_half(workers, config, layer.mlp_norm, hidden, n, entered);
}

void leave_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                std::vector<float>& x, std::uint64_t n, std::vector<float>& hidden) {
  if (!config.norms_of_sums) apply_norm(workers, config, x.data(), n, norm, x.data());
  if (config.residual_scale != 1)
    for (float& one : x) one *= config.residual_scale;
  add_to(workers, hidden.data(), x.data(), hidden.size());
  if (config.norms_of_sums) apply_norm(workers, config, hidden.data(), n, norm, hidden.data());
}

namespace {

constexpr float kLatentEps = 1e-6F;  // of the classes' norms of latents, whatever rms_norm_eps is

/// to [n, outs] = of a head's part of each row: columns [first, first + linear.in) of x [n, width].
void multiply_part(Workers& workers, bool alike, const Linear& linear, const float* x, std::uint64_t width,
                   std::uint64_t first, std::uint64_t n, std::vector<float>& part, float* to) {
  part.resize(n * linear.in);
  MatrixView{x + first, n, linear.in, width}.copy(part.data());
  multiply(workers, alike, {{&linear, to}}, part.data(), n);
}

/// Queries [n, heads * head_dim] and keys [n, head_dim] of latent attention before they rotate, of x [n,
/// hidden]: keys are the latent and the part that rotates, queries what each head multiplies that by.
/// `alike`: products are apply_linear_alike's.
void latent_rows(Workers& workers, const ModelConfig& config, const LatentWeights& weights, bool alike,
                 const float* x, std::uint64_t n, std::vector<float>& queries, std::vector<float>& keys) {
  const Latent& latent = config.latent;
  const std::uint64_t rank = latent.rank, dim = config.head_dim, heads = config.n_heads;
  keys.resize(n * dim);
  multiply(workers, alike, {{&weights.down_kv, keys.data()}}, x, n);
  std::vector<float> row(rank);
  for (std::uint64_t token = 0; token < n; ++token) {
    rms_norm(workers, keys.data() + token * dim, 1, weights.kv_norm, kLatentEps, row.data());
    std::copy(row.begin(), row.end(), keys.begin() + static_cast<std::ptrdiff_t>(token * dim));
  }
  std::vector<float> down, all(n * weights.q.out), part, out;
  if (latent.query_rank > 0) {
    down.resize(n * latent.query_rank);
    multiply(workers, alike, {{&weights.down_q, down.data()}}, x, n);
    rms_norm(workers, down.data(), n, weights.q_norm, kLatentEps, down.data());
    x = down.data();
  }
  multiply(workers, alike, {{&weights.q, all.data()}}, x, n);
  queries.resize(n * heads * dim);
  out.resize(n * rank);
  const std::uint64_t of_head = latent.plain + latent.rotated, width = heads * of_head;
  for (std::uint64_t head = 0; head < heads; ++head) {
    multiply_part(workers, alike, weights.keys[head], all.data(), width, head * of_head, n, part, out.data());
    for (std::uint64_t token = 0; token < n; ++token) {
      float* to = std::copy_n(out.data() + token * rank, rank, queries.data() + (token * heads + head) * dim);
      std::copy_n(all.data() + token * width + head * of_head + latent.plain, latent.rotated, to);
    }
  }
}

}  // namespace

float query_temperature(const ModelConfig& config, std::uint64_t position) {
  const float floors =
      std::floor(static_cast<float>(position + 1) / static_cast<float>(config.temperature_floor));
  return std::log1p(floors) * static_cast<float>(config.temperature_scale) + 1;
}

LayerHeads::LayerHeads(const ModelConfig& config, const LayerWeights& layer, const RopeTable& rope, Elem elem,
                       std::span<const float> temperatures)
    : keys{config.n_kv_heads,
           config.head_dim,
           layer.k_norm,
           static_cast<float>(config.norm_eps),
           &rope,
           elem,
           config.interleaved,
           config.centred_norms,
           config.latent.rank} {
  queries = keys;
  queries.heads = config.n_heads;
  queries.norm = layer.q_norm;
  queries.factors = temperatures;
}

void latent_heads(Workers& workers, const ModelConfig& config, const LatentWeights& weights, bool alike,
                  const LayerHeads& heads, const float* x, std::uint64_t n, std::vector<float>& scratch,
                  std::vector<float>& q, std::vector<float>& k, std::vector<float>& v) {
  std::vector<float> keys;
  latent_rows(workers, config, weights, alike, x, n, scratch, keys);
  q.resize(scratch.size());
  split_heads(workers, heads.queries, scratch.data(), n, q.data());
  k.resize(keys.size());
  split_heads(workers, heads.keys, keys.data(), n, k.data());
  v.resize(n * config.value_dim());
  MatrixView{k.data(), n, config.value_dim(), config.head_dim}.copy(v.data());
}

void latent_outputs(Workers& workers, const ModelConfig& config, const LatentWeights& weights, bool alike,
                    const std::vector<float>& attended, std::uint64_t stride, std::uint64_t n,
                    std::vector<float>& out) {
  const std::uint64_t heads = config.n_heads, value = config.latent.value;
  out.resize(n * heads * value);
  std::vector<float> part, of_head(n * value);
  for (std::uint64_t head = 0; head < heads; ++head) {
    multiply_part(workers, alike, weights.values[head], attended.data(), heads * stride, head * stride, n,
                  part, of_head.data());
    for (std::uint64_t token = 0; token < n; ++token)
      std::copy_n(of_head.data() + token * value, value, out.data() + (token * heads + head) * value);
  }
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
