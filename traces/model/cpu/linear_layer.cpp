#include "traces/model/cpu/linear_layer.hpp"

#include <algorithm>
#include <vector>

#include "traces/model/cpu/tile_product.hpp"
#include "traces/model/cpu/wide.hpp"

namespace kvsim::model::cpu {
namespace {

// Tiles of a product with many tokens. A panel of weights, kDepth x kPanel floats, stays in the first levels
// of cache for all tokens of a task; kRows x kVectors sums fill most registers.
constexpr std::size_t kVectors = kWideRegisters / 8;
constexpr std::size_t kRows = 6;
constexpr std::size_t kPanel = kVectors * kWide;
constexpr std::size_t kDepth = 256;
constexpr std::size_t kTokensPerProduct = 256;
// With fewer tokens than this, transposing a panel costs more than it saves.
constexpr std::size_t kFewTokens = 8;
// Number of outputs of a task, and of one pass over the input, in a product with few tokens.
constexpr std::size_t kOutputsPerTask = 64;
constexpr std::size_t kOutputsAtOnce = 8;
// Weights of few tokens are read once, as fast as memory gives them: bytes by which they are asked for ahead.
constexpr std::size_t kAhead = 1 << 14;
constexpr std::size_t kLineBytes = 64;

const std::byte* stored(const Linear& linear, std::size_t output, std::size_t input) {
  return linear.data + (output * linear.in + input) * elem_bytes(linear.elem);
}

/// Writes the weights of outputs [first, first + outputs) and inputs [from, from + depth) as panel [depth,
/// kPanel]; columns beyond `outputs` are zero.
void fill_panel(const Linear& linear, std::size_t first, std::size_t outputs, std::size_t from,
                std::size_t depth, float* panel) {
  alignas(64) float rows[kWide * kDepth];
  for (std::size_t group = 0; group < kPanel; group += kWide) {
    for (std::size_t i = 0; i < kWide; ++i) {
      float* row = rows + i * kDepth;
      const bool exists = group + i < outputs;
      if (exists) widen(linear.elem, stored(linear, first + group + i, from), depth, row);
      std::fill(exists ? row + depth : row, row + kDepth, 0.0F);
    }
    for (std::size_t k = 0; k < depth; k += kWide)
      transpose(rows + k, kDepth, panel + k * kPanel + group, kPanel);
  }
}

/// y [rows, kPanel] += x [rows, depth] panel.
template <std::size_t rows>
void multiply_panel(const float* x, std::size_t x_step, const float* panel, std::size_t depth, float* y,
                    std::size_t y_step) {
  Wide sums[rows][kVectors];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) sums[i][v] = load(y + i * y_step + v * kWide);
  add_product<rows, kVectors>(x, x_step, 1, panel, kPanel, depth, sums);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) store(sums[i][v], y + i * y_step + v * kWide);
}

/// Computes y [n, kPanel] for one panel's outputs: the bias first, then kDepth inputs at a time.
void apply_panel(const Linear& linear, std::size_t first, std::size_t outputs, const float* x, std::size_t n,
                 float* y, std::size_t y_step) {
  for (std::size_t token = 0; token < n; ++token) {
    float* row = y + token * y_step;
    std::fill_n(row, kPanel, 0.0F);
    if (!linear.bias.empty()) std::copy_n(linear.bias.data() + first, outputs, row);
  }
  alignas(64) thread_local float panel[kDepth * kPanel];
  for (std::size_t from = 0; from < linear.in; from += kDepth) {
    const std::size_t depth = std::min<std::size_t>(kDepth, linear.in - from);
    fill_panel(linear, first, outputs, from, depth, panel);
    std::size_t token = 0;
    for (; token + kRows <= n; token += kRows)
      multiply_panel<kRows>(x + token * linear.in + from, linear.in, panel, depth, y + token * y_step,
                            y_step);
    for (; token < n; ++token)
      multiply_panel<1>(x + token * linear.in + from, linear.in, panel, depth, y + token * y_step, y_step);
  }
}

void apply_to_many(Workers& workers, const Linear& linear, const float* x, std::size_t n, float* y) {
  const std::size_t token_tasks = tasks_of(n, kTokensPerProduct), panels = tasks_of(linear.out, kPanel);
  workers.run(token_tasks * panels, [&](std::size_t task) {
    const std::size_t first = task / token_tasks * kPanel, token = task % token_tasks * kTokensPerProduct;
    const std::size_t outputs = std::min<std::size_t>(kPanel, linear.out - first);
    const std::size_t tokens = std::min(kTokensPerProduct, n - token);
    const float* from = x + token * linear.in;
    float* to = y + token * linear.out + first;
    if (outputs == kPanel) return apply_panel(linear, first, outputs, from, tokens, to, linear.out);
    std::vector<float> whole(tokens * kPanel);  // for the last panel, which is wider than the remaining
                                                // outputs
    apply_panel(linear, first, outputs, from, tokens, whole.data(), kPanel);
    for (std::size_t i = 0; i < tokens; ++i)
      std::copy_n(whole.data() + i * kPanel, outputs, to + i * linear.out);
  });
}

/// Dot products of `count` rows of W with x, the last inputs padded with zeros.
template <Elem elem, std::size_t count>
void dot_rows(const Linear& linear, std::size_t first, const float* x, float* y) {
  Wide sums[count] = {};
  const std::size_t whole = linear.in / kWide * kWide, rest = linear.in - whole;
  for (std::size_t k = 0; k < whole; k += kWide) {
    const Wide input = load(x + k);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* weights = stored(linear, first + i, k);
      if (k * sizeof(float) % (kLineBytes * sizeof(float) / elem_bytes(elem)) == 0)
        __builtin_prefetch(weights + kAhead);
      sums[i] = multiply_add(load_stored<elem>(weights), input, sums[i]);
    }
  }
  if (rest > 0) {
    float input[kWide] = {}, weights[kWide] = {};
    std::copy_n(x + whole, rest, input);
    for (std::size_t i = 0; i < count; ++i) {
      widen(elem, stored(linear, first + i, whole), rest, weights);
      sums[i] = multiply_add(load(weights), load(input), sums[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i)
    y[first + i] = sum_of(sums[i]) + (linear.bias.empty() ? 0.0F : linear.bias[first + i]);
}

template <Elem elem>
void apply_to_few(Workers& workers, const Linear& linear, const float* x, std::size_t n, float* y) {
  workers.run(tasks_of(linear.out, kOutputsPerTask), [&](std::size_t task) {
    const std::size_t end = std::min<std::size_t>(linear.out, (task + 1) * kOutputsPerTask);
    std::size_t first = task * kOutputsPerTask;
    for (; first + kOutputsAtOnce <= end; first += kOutputsAtOnce)
      for (std::size_t token = 0; token < n; ++token)
        dot_rows<elem, kOutputsAtOnce>(linear, first, x + token * linear.in, y + token * linear.out);
    for (; first < end; ++first)
      for (std::size_t token = 0; token < n; ++token)
        dot_rows<elem, 1>(linear, first, x + token * linear.in, y + token * linear.out);
  });
}

}  // namespace

void apply_linear_alike(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y) {
  if (linear.elem == Elem::bf16 && tiles_available()) return apply_linear_on_tiles(workers, linear, x, n, y);
  apply_to_many(workers, linear, x, n, y);
}

void apply_linear(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y) {
  if (n >= kFewTokens) return apply_linear_alike(workers, linear, x, n, y);
  switch (linear.elem) {
    case Elem::f32:
      return apply_to_few<Elem::f32>(workers, linear, x, n, y);
    case Elem::f16:
      return apply_to_few<Elem::f16>(workers, linear, x, n, y);
    case Elem::bf16:
      return apply_to_few<Elem::bf16>(workers, linear, x, n, y);
  }
}

}  // namespace kvsim::model::cpu
