#include "traces/capture/cpu/kernels.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

namespace kvsim::capture::cpu {
namespace {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowStride = Eigen::OuterStride<>;
using ConstRows = Eigen::Map<const RowMatrix, Eigen::Unaligned, RowStride>;
using Rows = Eigen::Map<RowMatrix, Eigen::Unaligned, RowStride>;
using Line = Eigen::Map<Eigen::ArrayXf>;
using ConstLine = Eigen::Map<const Eigen::ArrayXf>;

// Tokens or elements per task of the element-wise steps.
constexpr std::uint64_t kTokensPerTask = 32;
constexpr std::uint64_t kElementsPerTask = 1 << 15;
constexpr std::uint64_t kQueryBlock = 64;

std::uint64_t tasks_of(std::uint64_t n, std::uint64_t per_task) {
  return (n + per_task - 1) / per_task;
}

Eigen::Index index(std::uint64_t n) {
  return static_cast<Eigen::Index>(n);
}

ConstRows map_rows(const float* data, std::uint64_t rows, std::uint64_t cols, std::uint64_t stride) {
  return {data, index(rows), index(cols), RowStride(index(stride))};
}
Rows map_rows(float* data, std::uint64_t rows, std::uint64_t cols, std::uint64_t stride) {
  return {data, index(rows), index(cols), RowStride(index(stride))};
}

/// Calls body(first, count) over [0, n) in runs of `per_task`.
void in_runs(Workers& workers, std::uint64_t n, std::uint64_t per_task,
             const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  workers.run(tasks_of(n, per_task), [&](std::size_t task) {
    const std::uint64_t first = task * per_task;
    body(first, std::min(per_task, n - first));
  });
}

void normalise(const float* x, std::span<const float> weight, float eps, float* y) {
  const ConstLine in(x, index(weight.size())), scale(weight.data(), index(weight.size()));
  const float inverse = 1.0F / std::sqrt(in.square().mean() + eps);
  Line(y, index(weight.size())) = scale * (in * inverse);
}

void rotate(float* x, const float* cosine, const float* sine, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosine[i] - high * sine[i];
    x[i + pairs] = high * cosine[i] + low * sine[i];
  }
}

void round_to(Elem elem, float* x, std::size_t count) {
  if (elem == Elem::f32) return;
  for (std::size_t i = 0; i < count; ++i)
    x[i] = elem == Elem::bf16 ? widen_bf16(narrow_bf16(x[i])) : widen_f16(narrow_f16(x[i]));
}

/// Queries [first, first + rows) of one head, and the keys any of them sees.
struct Block {
  std::uint32_t head;
  std::uint64_t first, rows, first_key, keys;
};

std::uint64_t first_visible(const AttentionInput& input, std::uint64_t row) {
  const std::uint64_t position = input.past + row;
  if (input.window < 0) return 0;
  const auto window = static_cast<std::uint64_t>(input.window);
  return position + 1 > window ? position + 1 - window : 0;
}

Block block_of(const AttentionInput& input, std::uint32_t head, std::uint64_t block) {
  const std::uint64_t first = block * kQueryBlock;
  const std::uint64_t rows = std::min(kQueryBlock, input.n - first);
  const std::uint64_t first_key = first_visible(input, first);
  return {head, first, rows, first_key, input.past + first + rows - first_key};
}

// Eigen peels a mapped array up to an aligned address and treats the peel otherwise than the rest (std::exp
// there, its own here; another order of a sum). Blocks of a fixed size, counted from the row's start, give
// the same bits wherever the row lies.
constexpr std::size_t kLanes = 64;
using Lanes = Eigen::Array<float, kLanes, 1>;

/// Calls body(lanes, first, count) for each block of x [n]; missing lanes of the last one are `padding`.
/// Stores the result.
template <class Body>
void in_lanes(float* x, std::size_t n, float padding, Body body) {
  for (std::size_t first = 0; first < n; first += kLanes) {
    const std::size_t count = std::min(kLanes, n - first);
    Lanes lanes = Lanes::Constant(padding);
    std::copy_n(x + first, count, lanes.data());
    body(lanes, first, count);
    std::copy_n(lanes.data(), count, x + first);
  }
}

/// p: dot products to probabilities softmax(scale * p) over keys [from, to) of the row, zero elsewhere.
void softmax(float* p, float scale, std::uint64_t from, std::uint64_t to, std::uint64_t keys) {
  const float largest = ConstLine(p + from, index(to - from)).maxCoeff();
  Lanes sums = Lanes::Zero();
  in_lanes(p + from, to - from, -std::numeric_limits<float>::infinity(),
           [&](Lanes& lanes, std::size_t, std::size_t) {
             lanes = ((lanes - largest) * scale).exp();
             sums += lanes;
           });
  Line(p + from, index(to - from)) *= 1.0F / sums.sum();
  std::fill(p, p + from, 0.0F);
  std::fill(p + to, p + keys, 0.0F);
}

/// Output of one block; leaves its probabilities in p [rows, keys].
void attend_block(const AttentionInput& input, const Block& block, float* p, float* out) {
  const std::uint64_t dim = input.dim, width = input.heads * dim;
  const std::uint64_t kv_head = block.head / (input.heads / input.kv_heads);
  const std::uint64_t kv_offset = (kv_head * input.capacity + block.first_key) * dim;
  const ConstRows q = map_rows(input.q + (block.head * input.n + block.first) * dim, block.rows, dim, dim);
  const ConstRows k = map_rows(input.k + kv_offset, block.keys, dim, dim);
  const ConstRows v = map_rows(input.v + kv_offset, block.keys, dim, dim);
  Rows scores = map_rows(p, block.rows, block.keys, block.keys);
  scores.noalias() = q * k.transpose();
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::uint64_t row = 0; row < block.rows; ++row) {
    const std::uint64_t from = first_visible(input, block.first + row) - block.first_key;
    const std::uint64_t to = input.past + block.first + row + 1 - block.first_key;
    softmax(p + row * block.keys, scale, from, to, block.keys);
  }
  map_rows(out + block.first * width + block.head * dim, block.rows, dim, width).noalias() = scores * v;
}

/// Adds the block's probabilities p [rows, keys] to its head's columns, tile by tile so that the sums stay in
/// cache. Keys beyond a row's own token have 0.
void add_columns(const Block& block, const float* p, const ColumnSums& columns) {
  constexpr std::uint64_t kTileKeys = 512;
  const std::uint64_t offset = block.head * columns.stride + block.first_key;
  for (std::uint64_t first = 0; first < block.keys; first += kTileKeys) {
    const std::uint64_t count = std::min(kTileKeys, block.keys - first);
    double* sum = columns.sum + offset + first;
    double* sum_squares = columns.sum_squares + offset + first;
    for (std::uint64_t row = 0; row < block.rows; ++row) {
      const float* from = p + row * block.keys + first;
      for (std::uint64_t j = 0; j < count; ++j) {
        const auto value = static_cast<double>(from[j]);
        sum[j] += value;
        sum_squares[j] += value * value;
      }
    }
  }
}

/// Attends one block of queries in every head, then shows its rows from `first_observed` on.
void attend_observed(Workers& workers, const AttentionInput& input, std::uint64_t block, float* out,
                     std::uint64_t first_observed, const RowObserver& observe, const ColumnSums& columns) {
  const Block shape = block_of(input, 0, block);
  std::vector<float> p(input.heads * shape.rows * shape.keys);
  workers.run(input.heads, [&](std::size_t head) {
    const Block own = block_of(input, static_cast<std::uint32_t>(head), block);
    float* own_p = p.data() + head * shape.rows * shape.keys;
    attend_block(input, own, own_p, out);
    if (columns.sum != nullptr) add_columns(own, own_p, columns);
  });
  std::vector<float> row_of_heads;
  for (std::uint64_t row = 0; row < shape.rows; ++row) {
    if (shape.first + row < first_observed) continue;
    const std::uint64_t first_key = first_visible(input, shape.first + row);
    const std::uint64_t n_keys = input.past + shape.first + row + 1 - first_key;
    row_of_heads.resize(input.heads * n_keys);
    for (std::uint32_t head = 0; head < input.heads; ++head) {
      const float* from = p.data() + (head * shape.rows + row) * shape.keys + (first_key - shape.first_key);
      std::copy_n(from, n_keys, row_of_heads.data() + head * n_keys);
    }
    observe(shape.first + row, first_key, n_keys, row_of_heads);
  }
}

}  // namespace

void rms_norm(Workers& workers, const float* x, std::uint64_t n, std::span<const float> weight, float eps,
              float* y) {
  in_runs(workers, n, kTokensPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < first + count; ++row)
      normalise(x + row * weight.size(), weight, eps, y + row * weight.size());
  });
}

void swiglu(Workers& workers, float* gate, const float* up, std::uint64_t n) {
  in_runs(workers, n, kElementsPerTask, [&](std::uint64_t first, std::uint64_t count) {
    in_lanes(gate + first, count, 0.0F, [&](Lanes& lanes, std::size_t at, std::size_t in_block) {
      Lanes factor = Lanes::Zero();
      std::copy_n(up + first + at, in_block, factor.data());
      lanes = lanes / (1.0F + (-lanes).exp()) * factor;
    });
  });
}

void add_to(Workers& workers, float* x, const float* y, std::uint64_t n) {
  in_runs(workers, n, kElementsPerTask, [&](std::uint64_t first, std::uint64_t count) {
    Line(x + first, index(count)) += ConstLine(y + first, index(count));
  });
}

void split_heads(Workers& workers, const HeadTransform& transform, const float* x, std::uint64_t n,
                 float* y) {
  const std::uint64_t dim = transform.dim;
  in_runs(workers, n, kTokensPerTask, [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < first + count; ++row) {
      for (std::uint64_t head = 0; head < transform.heads; ++head) {
        const float* from = x + (row * transform.heads + head) * dim;
        float* to = y + (head * n + row) * dim;
        if (transform.norm.empty()) {
          std::copy_n(from, dim, to);
        } else {
          normalise(from, transform.norm, transform.eps, to);
        }
        if (const RopeTable* rope = transform.rope; rope != nullptr) {
          const std::uint64_t at = row * rope->pairs;
          rotate(to, rope->cosine.data() + at, rope->sine.data() + at, rope->pairs);
        }
        round_to(transform.elem, to, dim);
      }
    }
  });
}

void attend(Workers& workers, const AttentionInput& input, float* out, std::uint64_t first_observed,
            const RowObserver& observe, const ColumnSums& columns) {
  const std::uint64_t blocks = tasks_of(input.n, kQueryBlock);
  const std::uint64_t unobserved = std::min(blocks, first_observed / kQueryBlock);
  const auto attend_one = [&](std::uint64_t head, std::uint64_t index) {
    thread_local std::vector<float> scratch;
    const Block block = block_of(input, static_cast<std::uint32_t>(head), index);
    if (scratch.size() < block.rows * block.keys) scratch.resize(block.rows * block.keys);
    attend_block(input, block, scratch.data(), out);
    if (columns.sum != nullptr) add_columns(block, scratch.data(), columns);
  };
  if (columns.sum == nullptr) {
    workers.run(unobserved * input.heads, [&](std::size_t task) {
      attend_one(task % input.heads, unobserved - 1 - task / input.heads);
    });
  } else {
    // Sums depend on their order: a head is one task.
    workers.run(input.heads, [&](std::size_t head) {
      for (std::uint64_t block = 0; block < unobserved; ++block) attend_one(head, block);
    });
  }
  for (std::uint64_t block = unobserved; block < blocks; ++block)
    attend_observed(workers, input, block, out, first_observed, observe, columns);
}

}  // namespace kvsim::capture::cpu
