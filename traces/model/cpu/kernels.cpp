#include "traces/model/cpu/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "traces/model/cpu/wide.hpp"

namespace kvsim::model::cpu {
namespace {

// Number of tokens or elements per task of the element-wise steps.
constexpr std::uint64_t kTokensPerTask = 32;
constexpr std::uint64_t kElementsPerTask = 1 << 15;

/// Calls body(first, count) over [0, n) in runs of `per_task`.
void in_runs(Workers& workers, std::uint64_t n, std::uint64_t per_task,
             const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  workers.run(tasks_of(n, per_task), [&](std::size_t task) {
    const std::uint64_t first = task * per_task;
    body(first, std::min(per_task, n - first));
  });
}

float mean(const float* x, std::size_t n) {
  SixteenSums sums;
  const std::size_t whole = n / SixteenSums::kLanes * SixteenSums::kLanes;
  for (std::size_t i = 0; i < whole; i += SixteenSums::kLanes)
    for (std::size_t part = 0; part < SixteenSums::kParts; ++part)
      sums.parts[part] += load(x + i + part * kWide);
  float sum = sums.total();
  for (std::size_t i = whole; i < n; ++i) sum += x[i];
  return sum / static_cast<float>(n);
}

float mean_square(const float* x, std::size_t n) {
  SixteenSums sums;
  const std::size_t whole = n / SixteenSums::kLanes * SixteenSums::kLanes;
  for (std::size_t i = 0; i < whole; i += SixteenSums::kLanes) sums.add_products(x + i, x + i);
  float sum = sums.total();
  for (std::size_t i = whole; i < n; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(n);
}

float inverse_norm(const float* x, std::size_t n, float eps) {
  return 1.0F / std::sqrt(mean_square(x, n) + eps);
}

void normalise(const float* x, std::span<const float> weight, float eps, float* y) {
  const float inverse = inverse_norm(x, weight.size(), eps);
  for (std::size_t i = 0; i < weight.size(); ++i) y[i] = weight[i] * (x[i] * inverse);
}

void normalise_centred(const float* x, std::span<const float> weight, float eps, float* y) {
  const float centre = mean(x, weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) y[i] = x[i] - centre;
  normalise(y, weight, eps, y);
}

void rotate(float* x, const float* cosine, const float* sine, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosine[i] - high * sine[i];
    x[i + pairs] = high * cosine[i] + low * sine[i];
  }
}

void rotate_interleaved(float* x, const float* cosine, const float* sine, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const float even = x[2 * i], odd = x[2 * i + 1];
    x[2 * i] = even * cosine[i] - odd * sine[i];
    x[2 * i + 1] = odd * cosine[i] + even * sine[i];
  }
}

Wide silu(Wide x) {
  return x / (1.0F + exp_of(-x));
}

float activated(Activation f, float x) {
  const float slope = std::sqrt(2 / std::numbers::pi_v<float>);
  switch (f) {
    case Activation::silu:
      return silu(all_of(x))[0];
    case Activation::relu:
      return std::max(x, 0.0F);
    case Activation::gelu:
      return 0.5F * x * (1 + std::erf(x / std::numbers::sqrt2_v<float>));
    case Activation::gelu_tanh:
      return 0.5F * x * (1 + std::tanh(slope * (x + 0.044715F * x * x * x)));
  }
  return x;
}

}  // namespace

void round_to(Elem elem, std::span<float> numbers) {
  if (elem == Elem::f32) return;
  for (float& x : numbers) x = elem == Elem::bf16 ? widen_bf16(narrow_bf16(x)) : widen_f16(narrow_f16(x));
}

void rms_norm(Workers& workers, const float* x, std::uint64_t n, std::span<const float> weight, float eps,
              float* y) {
  in_runs(workers, n, kTokensPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < first + count; ++row)
      normalise(x + row * weight.size(), weight, eps, y + row * weight.size());
  });
}

void layer_norm(Workers& workers, const float* x, std::uint64_t n, std::span<const float> weight,
                std::span<const float> bias, float eps, float* y) {
  in_runs(workers, n, kTokensPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < first + count; ++row) {
      float* to = y + row * weight.size();
      normalise_centred(x + row * weight.size(), weight, eps, to);
      for (std::size_t i = 0; i < bias.size(); ++i) to[i] += bias[i];
    }
  });
}

void swiglu(Workers& workers, float* gate, const float* up, std::uint64_t n) {
  in_runs(workers, n, kElementsPerTask, [&](std::uint64_t first, std::uint64_t count) {
    const std::uint64_t end = first + count, whole = first + count / kWide * kWide;
    for (std::uint64_t i = first; i < whole; i += kWide) store(silu(load(gate + i)) * load(up + i), gate + i);
    for (std::uint64_t i = whole; i < end; ++i) gate[i] = silu(all_of(gate[i]))[0] * up[i];
  });
}

void activate(Workers& workers, Activation f, float* gate, const float* up, std::uint64_t n) {
  if (f == Activation::silu && up != nullptr) return swiglu(workers, gate, up, n);
  in_runs(workers, n, kElementsPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i)
      gate[i] = activated(f, gate[i]) * (up == nullptr ? 1 : up[i]);
  });
}

void add_to(Workers& workers, float* x, const float* y, std::uint64_t n) {
  in_runs(workers, n, kElementsPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i) x[i] += y[i];
  });
}

void split_heads(Workers& workers, const HeadTransform& transform, const float* x, std::uint64_t n,
                 float* y) {
  const std::uint64_t dim = transform.dim;
  in_runs(workers, n, kTokensPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < first + count; ++row) {
      const std::uint64_t all = transform.heads * dim;
      const bool wide = transform.norm.size() > dim;
      const float inverse = wide ? inverse_norm(x + row * all, all, transform.eps) : 1;
      for (std::uint64_t head = 0; head < transform.heads; ++head) {
        const float* from = x + (row * transform.heads + head) * dim;
        float* to = y + (head * n + row) * dim;
        if (transform.norm.empty()) {
          std::copy_n(from, dim, to);
        } else if (transform.centred) {
          normalise_centred(from, transform.norm.subspan(wide ? head * dim : 0, dim), transform.eps, to);
        } else if (wide) {
          for (std::uint64_t i = 0; i < dim; ++i)
            to[i] = transform.norm[head * dim + i] * (from[i] * inverse);
        } else {
          normalise(from, transform.norm, transform.eps, to);
        }
        if (const RopeTable* rope = transform.rope; rope != nullptr) {
          const std::uint64_t at = row * rope->pairs;
          (transform.interleaved ? rotate_interleaved : rotate)(
              to + transform.first_rotated, rope->cosine.data() + at, rope->sine.data() + at, rope->pairs);
        }
        if (!transform.factors.empty())
          for (std::uint64_t i = 0; i < dim; ++i) to[i] *= transform.factors[row];
        round_to(transform.elem, {to, dim});
      }
    }
  });
}

}  // namespace kvsim::model::cpu
