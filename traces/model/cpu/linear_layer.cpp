#include "traces/model/cpu/linear_layer.hpp"

#include <algorithm>
#include <functional>
#include <utility>
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
constexpr std::size_t kOutputsAtOnce = kWideRegisters / 4;
// Weights of few tokens are read once, as fast as memory gives them: bytes by which they are asked for ahead.
constexpr std::size_t kAhead = 1 << 14;
constexpr std::size_t kLineBytes = 64;

const std::byte* stored(const Linear& linear, std::size_t output, std::size_t input) {
  return linear.data + (output * linear.in + input) * elem_bytes(linear.elem);
}

// Number of tokens whose sums stay in registers while quantised weights are widened into others.
constexpr std::size_t kPackedTokens = 4;

/// Where kPanel rows of packed weights from `first` on, a multiple of kPanel, begin: a place in a panel of
/// theirs for each register of mine.
struct PackedPlace {
  const std::byte* panel[kVectors];
  std::size_t lane[kVectors];
  std::size_t ahead;  ///< bytes to the same place of the next kPanel rows, for which memory is asked now

  PackedPlace(const Linear& linear, std::size_t first) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t output = first + v * kWide;
      // Rows that are not there are read as others; nobody uses their sums.
      panel[v] = linear.packed->panel((output < linear.out ? output : first) / PackedWeights::kRows);
      lane[v] = output % PackedWeights::kRows;
    }
    ahead = kPanel / PackedWeights::kRows *
            static_cast<std::size_t>(linear.packed->panel(1) - linear.packed->panel(0));
  }
};

/// Widens group `index` of the rows at `place`: calls use(k, weights) for each input k of the group in turn.
template <std::size_t bits, Elem scale_elem, class Use>
[[gnu::always_inline]] inline void widen_group(const PackedWeights& packed, const PackedPlace& place,
                                               std::size_t index, const Use& use) {
  constexpr std::size_t kOne = elem_bytes(scale_elem), kScales = PackedWeights::kRows * kOne;
  const std::size_t offset = index * packed.group_bytes(), group = packed.form().group;
  const FloatsOfFourBits floats(packed.form().least);
  Wide scale[kVectors], addend[kVectors], weights[kVectors];
  const std::byte* numbers[kVectors];
#pragma GCC unroll 8
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::byte* at = place.panel[v] + offset;
    scale[v] = load_stored<scale_elem>(at + place.lane[v] * kOne);
    addend[v] = load_stored<scale_elem>(at + kScales + place.lane[v] * kOne);
    numbers[v] = at + 2 * kScales + place.lane[v];
    for (std::size_t line = 0; line < packed.group_bytes(); line += kLineBytes)
      __builtin_prefetch(at + place.ahead + line, 0, 2);
  }
  if constexpr (bits == 8) {
    for (std::size_t k = 0; k < group; ++k) {
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v)
        weights[v] = multiply_add(
            scale[v], floats_of(load_bytes<std::int8_t>(numbers[v] + k * PackedWeights::kRows)), addend[v]);
      use(k, weights);
    }
  } else {
    for (std::size_t k = 0; k < group; k += 2) {
      WideInt pair[kVectors];
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) {
        pair[v] = load_bytes<std::uint8_t>(numbers[v] + k / 2 * PackedWeights::kRows);
        weights[v] = multiply_add(scale[v], floats.of(pair[v]), addend[v]);
      }
      use(k, weights);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v)
        weights[v] = multiply_add(scale[v], floats.of(pair[v] >> 4), addend[v]);
      use(k + 1, weights);
    }
  }
}

/// Calls body with the numbers' bits and the scales' type as constants.
template <class Body>
void with_form(const PackedWeights& packed, const Body& body) {
  using Four = std::integral_constant<std::size_t, 4>;
  using Eight = std::integral_constant<std::size_t, 8>;
  using Half = std::integral_constant<Elem, Elem::f16>;
  using Single = std::integral_constant<Elem, Elem::f32>;
  const BlockForm& form = packed.form();
  if (form.bits == 4) return form.half ? body(Four{}, Half{}) : body(Four{}, Single{});
  return form.half ? body(Eight{}, Half{}) : body(Eight{}, Single{});
}

/// y [tokens, kPanel] = x W^T + b for one panel's outputs, in the order of sums of apply_panel().
template <std::size_t tokens, std::size_t bits, Elem scale_elem>
void apply_packed(const Linear& linear, std::size_t first, const float* x, float* y) {
  const PackedPlace place(linear, first);
  Wide sums[tokens][kVectors];
  for (std::size_t i = 0; i < tokens; ++i)
    for (std::size_t v = 0; v < kVectors; ++v) sums[i][v] = load(y + i * kPanel + v * kWide);
  const std::size_t group = linear.packed->form().group;
  for (std::size_t g = 0; g * group < linear.in; ++g) {
    const float* from = x + g * group;
    widen_group<bits, scale_elem>(
        *linear.packed, place,
        g, [&](std::size_t k, const Wide(&weights)[kVectors]) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (std::size_t i = 0; i < tokens; ++i) {
            const Wide input = all_of(from[i * linear.in + k]);
#pragma GCC unroll 8
            for (std::size_t v = 0; v < kVectors; ++v)
              sums[i][v] = multiply_add(input, weights[v], sums[i][v]);
          }
        });
  }
  for (std::size_t i = 0; i < tokens; ++i)
    for (std::size_t v = 0; v < kVectors; ++v) store(sums[i][v], y + i * kPanel + v * kWide);
}

/// Work that threads share: run(0) ... run(tasks - 1), in any order.
struct Job {
  std::size_t tasks = 0;
  std::function<void(std::size_t)> run;
};

Job packed_to_few(const Linear& linear, const float* x, std::size_t n, float* y) {
  return {tasks_of(linear.out, kPanel), [&linear, x, n, y](std::size_t task) {
            const std::size_t first = task * kPanel,
                              outputs = std::min<std::size_t>(kPanel, linear.out - first);
            alignas(64) float sums[kPackedTokens * kPanel] = {};
            for (std::size_t i = 0; i < n && !linear.bias.empty(); ++i)
              std::copy_n(linear.bias.data() + first, outputs, sums + i * kPanel);
            with_form(*linear.packed, [&](auto bits, auto scale) {
              constexpr std::size_t kBits = decltype(bits)::value;
              constexpr Elem kScale = decltype(scale)::value;
              if (n == 1) apply_packed<1, kBits, kScale>(linear, first, x, sums);
              if (n == 2) apply_packed<2, kBits, kScale>(linear, first, x, sums);
              if (n == 3) apply_packed<3, kBits, kScale>(linear, first, x, sums);
              if (n == 4) apply_packed<4, kBits, kScale>(linear, first, x, sums);
            });
            for (std::size_t i = 0; i < n; ++i)
              std::copy_n(sums + i * kPanel, outputs, y + i * linear.out + first);
          }};
}

/// fill_panel() of packed weights.
void fill_packed_panel(const Linear& linear, std::size_t first, std::size_t from, std::size_t depth,
                       float* panel) {
  const PackedPlace place(linear, first);
  const std::size_t group = linear.packed->form().group;
  with_form(*linear.packed, [&](auto bits, auto scale) {
    for (std::size_t k = 0; k < depth; k += group)
      widen_group<decltype(bits)::value, decltype(scale)::value>(
          *linear.packed, place, (from + k) / group, [&](std::size_t at, const Wide(&weights)[kVectors]) {
#pragma GCC unroll 8
            for (std::size_t v = 0; v < kVectors; ++v)
              store(weights[v], panel + (k + at) * kPanel + v * kWide);
          });
  });
}

/// fill_panel() of whole registers of stored weights. Asks memory for those that come next: the inputs
/// behind, or the first ones of the next panel.
template <Elem elem>
void fill_stored_panel(const Linear& linear, std::size_t first, std::size_t from, std::size_t depth,
                       float* panel) {
  const std::size_t end = from + depth;
  const std::size_t next = end < linear.in ? first * linear.in + end : (first + kPanel) * linear.in;
  for (std::size_t group = 0; group < kPanel; group += kWide) {
    for (std::size_t i = 0; i < kWide; ++i)
      for (std::size_t line = 0; line < depth * elem_bytes(elem); line += kLineBytes)
        __builtin_prefetch(linear.data + (next + (group + i) * linear.in) * elem_bytes(elem) + line, 0, 2);
    for (std::size_t k = 0; k < depth; k += kWide)
      transpose_stored<elem>(stored(linear, first + group, from + k), linear.in, panel + k * kPanel + group,
                             kPanel);
  }
}

/// Writes the weights of outputs [first, first + outputs) and inputs [from, from + depth) as panel [depth,
/// kPanel]; columns beyond `outputs` are those of no output.
void fill_panel(const Linear& linear, std::size_t first, std::size_t outputs, std::size_t from,
                std::size_t depth, float* panel) {
  if (linear.packed) return fill_packed_panel(linear, first, from, depth, panel);
  if (outputs == kPanel && depth % kWide == 0) {
    if (linear.elem == Elem::bf16) return fill_stored_panel<Elem::bf16>(linear, first, from, depth, panel);
    if (linear.elem == Elem::f16) return fill_stored_panel<Elem::f16>(linear, first, from, depth, panel);
    return fill_stored_panel<Elem::f32>(linear, first, from, depth, panel);
  }
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
    for (std::size_t token = 0, rows; token < n; token += rows) {
      // The last two blocks are alike, because sums of few rows wait for each other.
      const std::size_t left = n - token;
      rows = left <= kRows || left >= 2 * kRows ? std::min(left, kRows) : (left + 1) / 2;
      const float* rest = x + token * linear.in + from;
      float* to = y + token * y_step;
      [&]<std::size_t... less>(std::index_sequence<less...>) {
        ((rows == less + 1 ? multiply_panel<less + 1>(rest, linear.in, panel, depth, to, y_step) : void()),
         ...);
      }
      (std::make_index_sequence<kRows>{});
    }
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

/// Dot products of `count` rows of W with x, the last inputs padded with zeros. Behind the last weights come
/// those at `next`.
template <Elem elem, std::size_t count>
void dot_rows(const Linear& linear, std::size_t first, const float* x, float* y, const std::byte* next) {
  const std::byte* const end = stored(linear, linear.out, 0);
  constexpr std::size_t kSums = SixteenSums::kLanes;
  SixteenSums sums[count];
  const std::size_t whole = linear.in / kSums * kSums, rest = linear.in - whole;
  for (std::size_t k = 0; k < whole; k += kSums) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* weights = stored(linear, first + i, k);
      if (k * sizeof(float) % (kLineBytes * sizeof(float) / elem_bytes(elem)) == 0)
        __builtin_prefetch(weights + kAhead < end ? weights + kAhead : next + (weights + kAhead - end));
      sums[i].template add_products<elem>(weights, x + k);
    }
  }
  if (rest > 0) {
    float input[kSums] = {}, weights[kSums] = {};
    std::copy_n(x + whole, rest, input);
    for (std::size_t i = 0; i < count; ++i) {
      widen(elem, stored(linear, first + i, whole), rest, weights);
      sums[i].add_products(weights, input);
    }
  }
  for (std::size_t i = 0; i < count; ++i)
    y[first + i] = sums[i].total() + (linear.bias.empty() ? 0.0F : linear.bias[first + i]);
}

template <Elem elem>
Job stored_to_few(const Linear& linear, const float* x, std::size_t n, float* y, const std::byte* next) {
  return {tasks_of(linear.out, kOutputsPerTask), [&linear, x, n, y, next](std::size_t task) {
            const std::size_t end = std::min<std::size_t>(linear.out, (task + 1) * kOutputsPerTask);
            std::size_t first = task * kOutputsPerTask;
            for (; first + kOutputsAtOnce <= end; first += kOutputsAtOnce)
              for (std::size_t token = 0; token < n; ++token)
                dot_rows<elem, kOutputsAtOnce>(linear, first, x + token * linear.in, y + token * linear.out,
                                               next);
            for (; first < end; ++first)
              for (std::size_t token = 0; token < n; ++token)
                dot_rows<elem, 1>(linear, first, x + token * linear.in, y + token * linear.out, next);
          }};
}

bool few_tokens(const Linear& linear, std::size_t n) {
  return n < (linear.packed ? kPackedTokens + 1 : kFewTokens);
}

Job to_few(const Linear& linear, const float* x, std::size_t n, float* y, const std::byte* next) {
  if (linear.packed) return packed_to_few(linear, x, n, y);
  switch (linear.elem) {
    case Elem::f32:
      return stored_to_few<Elem::f32>(linear, x, n, y, next);
    case Elem::f16:
      return stored_to_few<Elem::f16>(linear, x, n, y, next);
    case Elem::bf16:
      return stored_to_few<Elem::bf16>(linear, x, n, y, next);
  }
  return {};
}

}  // namespace

void apply_linear_alike(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y) {
  if (linear.packed && few_tokens(linear, n)) return apply_linear(workers, linear, x, n, y);
  if (linear.elem == Elem::bf16 && tiles_available()) return apply_linear_on_tiles(workers, linear, x, n, y);
  apply_to_many(workers, linear, x, n, y);
}

void apply_linear(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y) {
  apply_linear(workers, {{&linear, y}}, x, n);
}

void apply_linear(Workers& workers, std::initializer_list<Product> products, const float* x,
                  std::uint64_t n) {
  apply_linear(workers, std::span(products.begin(), products.end()), x, n);
}

void apply_linear(Workers& workers, std::span<const Product> products, const float* x, std::uint64_t n) {
  std::vector<Job> jobs;
  std::size_t tasks = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto& [linear, y, own] = products[i];
    const float* from = own != nullptr ? own : x;
    if (!few_tokens(*linear, n)) {
      apply_linear_alike(workers, *linear, from, n, y);
      continue;
    }
    const std::byte* next = products[std::min(i + 1, products.size() - 1)].linear->data;
    tasks += jobs.emplace_back(to_few(*linear, from, n, y, next)).tasks;
  }
  if (tasks == 0) return;
  workers.run(tasks, [&](std::size_t task) {
    auto job = jobs.begin();
    for (; task >= job->tasks; ++job) task -= job->tasks;
    job->run(task);
  });
}

}  // namespace kvsim::model::cpu
