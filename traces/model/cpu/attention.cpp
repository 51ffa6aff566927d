#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/wide.hpp"

namespace kvsim::model::cpu {
namespace {

// The lanes of registers hold different queries, so that a score, a maximum or a weighted value of kLanes
// queries takes a few instructions, and keys and values are read in place.
constexpr std::size_t kLaneVectors = kWideRegisters / 8;
constexpr std::size_t kLanes = kLaneVectors * kWide;
// Number of keys or channels whose sums stay in registers at a time; they fill most registers.
template <std::size_t vectors>
constexpr std::size_t kRowsAtOnce = vectors == 1 ? 12 : 6;
// Number of keys in a partial sum; it keeps the rounding small and the scores of these keys in cache.
constexpr std::size_t kStretch = 256;
// Stretches of a task of a token alone: long enough to be worth a thread, and enough tasks for many threads.
constexpr std::size_t kStretchesPerTask = 2;
// Bytes by which a token alone asks memory for keys and values ahead.
constexpr std::size_t kCacheAhead = 1 << 13;

std::size_t rounded_up(std::size_t n) {
  return tasks_of(n, kWide) * kWide;
}

/// How queries are assigned to lanes: the heads of a group (or kLanes of them), each with the same few rows.
struct Deal {
  explicit Deal(const AttentionInput& input)
      : group(input.heads / input.kv_heads),
        heads(std::min<std::size_t>(group, kLanes)),
        rows(kLanes / heads),
        parts(tasks_of(group, heads)) {}

  std::size_t group, heads, rows;  ///< query heads per key head; heads and rows of a block
  std::size_t parts;               ///< blocks into which a group is divided
};

/// Queries [first, first + rows) of heads [head, head + heads), and the keys that any of them sees. Lane h *
/// rows + r is row r of head h.
struct Block {
  std::size_t head, heads, first, rows, first_key, keys;
  std::size_t lanes() const { return heads * rows; }
};

std::size_t first_visible(const AttentionInput& input, std::size_t row) {
  const std::size_t position = input.past + row;
  if (input.window < 0) return 0;
  const auto window = static_cast<std::size_t>(input.window);
  if (input.chunked) return position - position % window;
  return position + 1 > window ? position + 1 - window : 0;
}

/// The block of part `part`, which belongs to key head part / deal.parts, and of the rows of block `index`.
Block block_of(const AttentionInput& input, const Deal& deal, std::size_t part, std::size_t index) {
  const std::size_t in_group = part % deal.parts * deal.heads;
  const std::size_t first = index * deal.rows, rows = std::min(deal.rows, input.n - first);
  const std::size_t first_key = first_visible(input, first);
  return {part / deal.parts * deal.group + in_group,
          std::min(deal.heads, deal.group - in_group),
          first,
          rows,
          first_key,
          input.past + first + rows - first_key};
}

/// Key or value rows of a head in `of`, which is input.k or input.v, from `first` on.
const std::byte* stored_rows(const AttentionInput& input, const void* of, std::size_t kv_head,
                             std::size_t first) {
  return static_cast<const std::byte*>(of) +
         (kv_head * input.capacity + first) * input.dim * elem_bytes(input.elem);
}

/// Calls body with the type of the cache as a constant.
template <class Body>
void with_elem(Elem elem, const Body& body) {
  if (elem == Elem::f32) return body(std::integral_constant<Elem, Elem::f32>{});
  if (elem == Elem::f16) return body(std::integral_constant<Elem, Elem::f16>{});
  body(std::integral_constant<Elem, Elem::bf16>{});
}

/// Transposes [rows, columns], both multiples of kWide.
void turn(const float* from, std::size_t rows, std::size_t columns, float* to) {
  for (std::size_t i = 0; i < rows; i += kWide)
    for (std::size_t j = 0; j < columns; j += kWide)
      transpose(from + i * columns + j, columns, to + j * rows + i, rows);
}

/// The intermediate results of a block, in the order of registers. It grows on demand and is reused.
class Scratch {
 public:
  float* p(std::size_t keys, std::size_t lanes) { return p_.floats(rounded_up(keys) * lanes); }
  float* p() { return p_.floats(0); }
  float* rows(std::size_t floats) { return rows_.floats(floats); }
  float* columns(std::size_t floats) { return columns_.floats(floats); }
  float* widened(std::size_t floats) { return widened_.floats(floats); }
  float inverse[kLanes];  ///< of the sum of each lane's weights

 private:
  WideBuffer p_, rows_, columns_, widened_;
};

/// Rows [first, first + count) of the block's keys or values as floats: in place, or widened.
const float* float_rows(const AttentionInput& input, const Block& block, const void* of, std::size_t first,
                        std::size_t count, Scratch& scratch) {
  const std::size_t kv_head = block.head / (input.heads / input.kv_heads);
  const std::byte* rows = stored_rows(input, of, kv_head, block.first_key + first);
  if (input.elem == Elem::f32) return reinterpret_cast<const float*>(rows);
  float* out = scratch.widened(count * input.dim);
  widen(input.elem, rows, count * input.dim, out);
  return out;
}

/// The lanes' queries as [dim, lanes]; lanes without a query are zero.
const float* gather_queries(const AttentionInput& input, const Block& block, std::size_t lanes,
                            Scratch& scratch) {
  const std::size_t dim = rounded_up(input.dim);
  float* rows = scratch.rows(lanes * dim);
  std::fill_n(rows, lanes * dim, 0.0F);
  for (std::size_t lane = 0; lane < block.lanes(); ++lane) {
    const std::size_t head = block.head + lane / block.rows, row = block.first + lane % block.rows;
    std::copy_n(input.q + (head * input.n + row) * input.dim, input.dim, rows + lane * dim);
  }
  float* queries = scratch.columns(lanes * dim);
  turn(rows, lanes, dim, queries);
  return queries;
}

/// The keys of the block that each lane sees: [from, to). Lanes without a query see the keys of the first
/// lane.
template <std::size_t vectors>
struct Visible {
  WideInt from[vectors], to[vectors];
  std::size_t all_from = 0, all_to;  ///< keys that every lane sees

  Visible(const AttentionInput& input, const Block& block) : all_to(block.keys) {
    std::array<std::int32_t, vectors * kWide> begin, end;
    for (std::size_t lane = 0; lane < begin.size(); ++lane) {
      const std::size_t row = lane < block.lanes() ? lane % block.rows : 0;
      const std::size_t first = first_visible(input, block.first + row) - block.first_key;
      const std::size_t last = input.past + block.first + row + 1 - block.first_key;
      all_from = std::max(all_from, first);
      all_to = std::min(all_to, last);
      begin[lane] = static_cast<std::int32_t>(first);
      end[lane] = static_cast<std::int32_t>(last);
    }
    std::memcpy(from, begin.data(), sizeof from);
    std::memcpy(to, end.data(), sizeof to);
  }
};

/// Caps `count` products, a multiple of kWide, as scores, and makes products of them again; -inf stays.
void cap_products(const AttentionInput& input, float* products, std::size_t count) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(input.dim)) / input.cap;
  for (std::size_t i = 0; i < count; i += kWide) {
    const Wide product = load(products + i), capped = tanh_of(product * scale) / scale;
    store(product > all_of(-std::numeric_limits<float>::infinity()) ? capped : product, products + i);
  }
}

/// The product that the scale makes the score of a head's sink.
float sink_product(const AttentionInput& input, std::size_t head) {
  return input.sinks[head] * std::sqrt(static_cast<float>(input.dim));
}

/// The weight of a lane's sink beside those of its keys.
float sink_weight(const AttentionInput& input, std::size_t head, float largest) {
  float weights[kWide];
  store(exp_of(all_of((sink_product(input, head) - largest) / std::sqrt(static_cast<float>(input.dim)))),
        weights);
  return weights[0];
}

/// Writes the scores of `rows` keys, of which the first is key `first`, to p, -inf where a lane does not see
/// the key, and updates the maximum `largest`.
template <std::size_t vectors, std::size_t rows>
void score(const float* keys, std::size_t dim, const float* queries, const Visible<vectors>& visible,
           std::size_t first, float* p, Wide (&largest)[vectors]) {
  Wide sums[rows][vectors] = {};
  add_product<rows, vectors>(keys, dim, 1, queries, vectors * kWide, dim, sums);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t key = first + i;
    const bool seen_by_all = key >= visible.all_from && key < visible.all_to;
    const WideInt here = WideInt{} + static_cast<std::int32_t>(key);
    for (std::size_t v = 0; v < vectors; ++v) {
      Wide s = sums[i][v];
      if (!seen_by_all) {
        const WideInt seen = (here >= visible.from[v]) & (here < visible.to[v]);
        s = seen ? s : all_of(-std::numeric_limits<float>::infinity());
      }
      largest[v] = s > largest[v] ? s : largest[v];
      store(s, p + (key * vectors + v) * kWide);
    }
  }
}

/// Replaces the scores in p [keys, lanes] by weights e^(scale (score - largest)) and returns their sums.
template <std::size_t vectors>
void weigh(float* p, std::size_t keys, float scale, const Wide (&largest)[vectors], Wide (&sums)[vectors]) {
  for (std::size_t first = 0; first < keys; first += kStretch) {
    Wide partial[vectors] = {};
    for (std::size_t key = first; key < std::min(keys, first + kStretch); ++key) {
      for (std::size_t v = 0; v < vectors; ++v) {
        float* at = p + (key * vectors + v) * kWide;
        const Wide weight = exp_of((load(at) - largest[v]) * scale);
        partial[v] += weight;
        store(weight, at);
      }
    }
    for (std::size_t v = 0; v < vectors; ++v) sums[v] += partial[v];
  }
}

/// to [rows, lanes] += values^T p for channels [channel, channel + rows) over `keys` keys.
template <std::size_t vectors, std::size_t rows>
void add_values(const float* values, std::size_t dim, std::size_t channel, const float* p, std::size_t keys,
                float* to) {
  Wide sums[rows][vectors] = {};
  add_product<rows, vectors>(values + channel, 1, dim, p, vectors * kWide, keys, sums);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t v = 0; v < vectors; ++v) {
      float* at = to + ((channel + i) * vectors + v) * kWide;
      store(load(at) + sums[i][v], at);
    }
  }
}

/// Computes the output of one block; leaves its weights in scratch.p [keys, lanes] and the inverses of their
/// sums in scratch.inverse.
template <std::size_t vectors>
void attend_lanes(const AttentionInput& input, const Block& block, Scratch& scratch, float* out) {
  constexpr std::size_t lanes = vectors * kWide, at_once = kRowsAtOnce<vectors>;
  float* p = scratch.p(block.keys, lanes);
  const float* queries = gather_queries(input, block, lanes, scratch);

  const Visible<vectors> visible(input, block);
  Wide largest[vectors], sums[vectors] = {};
  for (Wide& most : largest) most = all_of(-std::numeric_limits<float>::infinity());
  constexpr std::size_t kKeys = kStretch / at_once * at_once;
  for (std::size_t first = 0; first < block.keys; first += kKeys) {
    const std::size_t count = std::min(kKeys, block.keys - first);
    const float* keys = float_rows(input, block, input.k, first, count, scratch);
    std::size_t i = 0;
    for (; i + at_once <= count; i += at_once)
      score<vectors, at_once>(keys + i * input.dim, input.dim, queries, visible, first + i, p, largest);
    for (; i < count; ++i)
      score<vectors, 1>(keys + i * input.dim, input.dim, queries, visible, first + i, p, largest);
  }
  if (input.cap != 0) {
    cap_products(input, p, block.keys * lanes);
    for (Wide& most : largest) {
      float products[kWide];
      store(most, products);
      cap_products(input, products, kWide);
      most = load(products);
    }
  }
  float most[lanes];  // with sinks: of each lane
  if (input.sinks != nullptr) {
    for (std::size_t v = 0; v < vectors; ++v) store(largest[v], most + v * kWide);
    for (std::size_t lane = 0; lane < block.lanes(); ++lane)
      most[lane] = std::max(most[lane], sink_product(input, block.head + lane / block.rows));
    for (std::size_t v = 0; v < vectors; ++v) largest[v] = load(most + v * kWide);
  }
  weigh<vectors>(p, block.keys, 1.0F / std::sqrt(static_cast<float>(input.dim)), largest, sums);
  if (input.sinks != nullptr) {
    float weights[lanes] = {};
    for (std::size_t lane = 0; lane < block.lanes(); ++lane)
      weights[lane] = sink_weight(input, block.head + lane / block.rows, most[lane]);
    for (std::size_t v = 0; v < vectors; ++v) sums[v] += load(weights + v * kWide);
  }
  for (std::size_t v = 0; v < vectors; ++v) store(all_of(1.0F) / sums[v], scratch.inverse + v * kWide);

  const std::size_t dim = rounded_up(input.dim);
  float* turned = scratch.columns(dim * lanes);
  std::fill_n(turned, dim * lanes, 0.0F);
  for (std::size_t first = 0; first < block.keys; first += kStretch) {
    const std::size_t count = std::min(kStretch, block.keys - first);
    const float* values = float_rows(input, block, input.v, first, count, scratch);
    std::size_t channel = 0;
    for (; channel + at_once <= input.dim; channel += at_once)
      add_values<vectors, at_once>(values, input.dim, channel, p + first * lanes, count, turned);
    for (; channel < input.dim; ++channel)
      add_values<vectors, 1>(values, input.dim, channel, p + first * lanes, count, turned);
  }
  float* rows = scratch.rows(lanes * dim);
  turn(turned, dim, lanes, rows);
  for (std::size_t lane = 0; lane < block.lanes(); ++lane) {
    const std::size_t head = block.head + lane / block.rows, row = block.first + lane % block.rows;
    float* to = out + (row * input.heads + head) * input.dim;
    for (std::size_t i = 0; i < input.dim; ++i) to[i] = rows[lane * dim + i] * scratch.inverse[lane];
  }
}

/// A block of one row, whose queries would leave most lanes empty: here the lanes hold keys, and later
/// channels. Its stretches of keys may be computed in any order and by any thread, first their scores, then
/// their weights; every sum has the order of attend_lanes().
class RowByStretch {
 public:
  RowByStretch(const AttentionInput& input, const Block& block, Scratch& scratch)
      : input_(input),
        block_(block),
        scratch_(scratch),
        kv_head_(block.head / (input.heads / input.kv_heads)),
        step_(rounded_up(block.keys)),
        p_(scratch.p(block.keys, block.heads)),
        largest_(scratch.rows(stretches() * block.heads * (input.dim + 2))),
        sums_(largest_ + stretches() * block.heads),
        values_(sums_ + stretches() * block.heads) {}

  std::size_t stretches() const { return tasks_of(block_.keys, kStretch); }
  void score(std::size_t stretch) {
    with_elem(input_.elem, [&](auto elem) {
      by_queries([&](auto queries, std::size_t lane) {
        score_keys<decltype(elem)::value, decltype(queries)::value>(stretch, lane);
      });
    });
  }
  /// After every score().
  void weigh(std::size_t stretch) {
    with_elem(input_.elem, [&](auto elem) {
      by_queries([&](auto queries, std::size_t lane) {
        weigh_values<decltype(elem)::value, decltype(queries)::value>(stretch, lane);
      });
    });
  }
  /// After every weigh(): the outputs, and scratch.inverse.
  void finish(float* out) const {
    for (std::size_t lane = 0; lane < block_.heads; ++lane) {
      float sum = 0, *to = out + (block_.first * input_.heads + block_.head + lane) * input_.dim;
      std::fill_n(to, input_.dim, 0.0F);
      for (std::size_t stretch = 0; stretch < stretches(); ++stretch) {
        const std::size_t at = stretch * block_.heads + lane;
        sum += sums_[at];
        for (std::size_t c = 0; c < input_.dim; ++c) to[c] += values_[at * input_.dim + c];
      }
      if (input_.sinks != nullptr) sum += sink_weight(input_, block_.head + lane, most(lane));
      scratch_.inverse[lane] = 1.0F / sum;
      for (std::size_t c = 0; c < input_.dim; ++c) to[c] *= scratch_.inverse[lane];
    }
  }

 private:
  static constexpr std::size_t kKeysAtOnce = 2 * kWide;

  /// The largest product of a lane, its sink's included.
  float most(std::size_t lane) const {
    float most = largest_[lane];
    for (std::size_t other = 1; other < stretches(); ++other)
      most = std::max(most, largest_[other * block_.heads + lane]);
    return input_.sinks == nullptr ? most : std::max(most, sink_product(input_, block_.head + lane));
  }

  /// Calls body(number of queries, first lane) for at most four heads at a time.
  template <class Body>
  void by_queries(const Body& body) const {
    std::size_t lane = 0;
    for (; lane + 4 <= block_.heads; lane += 4) body(std::integral_constant<std::size_t, 4>{}, lane);
    if (block_.heads - lane == 3) body(std::integral_constant<std::size_t, 3>{}, lane);
    if (block_.heads - lane == 2) body(std::integral_constant<std::size_t, 2>{}, lane);
    if (block_.heads - lane == 1) body(std::integral_constant<std::size_t, 1>{}, lane);
  }

  template <Elem elem, std::size_t queries>
  void score_keys(std::size_t stretch, std::size_t lane) {
    constexpr std::size_t kOne = elem_bytes(elem);
    const std::size_t dim = input_.dim, end = std::min(block_.keys, (stretch + 1) * kStretch);
    const float* query = input_.q + ((block_.head + lane) * input_.n + block_.first) * dim;
    const std::byte* keys = stored_rows(input_, input_.k, kv_head_, block_.first_key);
    thread_local WideBuffer buffer;
    float* turned = buffer.floats(2 * kKeysAtOnce * dim);
    auto* last_keys = reinterpret_cast<std::byte*>(turned + kKeysAtOnce * dim);

    Wide largest[queries];
    for (Wide& most : largest) most = all_of(-std::numeric_limits<float>::infinity());
    for (std::size_t first = stretch * kStretch; first < end; first += kKeysAtOnce) {
      const std::size_t count = std::min(kKeysAtOnce, end - first), row = dim * kOne;
      const std::byte* from = keys + first * row;
      if (count < kKeysAtOnce) {  // the first key once more for those that are not there
        std::copy_n(from, count * row, last_keys);
        for (std::size_t i = count; i < kKeysAtOnce; ++i) std::copy_n(from, row, last_keys + i * row);
        from = last_keys;
      }
      const std::byte* ahead = keys + first * row + kCacheAhead;
      for (std::size_t i = 0; i < kKeysAtOnce; i += kWide)
        for (std::size_t c = 0; c < dim; c += kWide, ahead += kWide * kWide * kOne) {
          for (std::size_t line = 0; line < kWide * kWide * kOne; line += 64)
            __builtin_prefetch(ahead + line);
          transpose_stored<elem>(from + (i * dim + c) * kOne, dim, turned + c * kKeysAtOnce + i, kKeysAtOnce);
        }
      Wide sums[queries][2] = {};
      add_product<queries, 2>(query, input_.n * dim, 1, turned, kKeysAtOnce, dim, sums);
      for (std::size_t i = 0; i < queries; ++i)
        for (std::size_t v = 0; v < 2 && v * kWide < count; ++v) {
          largest[i] = sums[i][v] > largest[i] ? sums[i][v] : largest[i];
          store(sums[i][v], p_ + (lane + i) * step_ + first + v * kWide);
        }
    }
    for (std::size_t i = 0; i < queries; ++i) {
      float lanes[kWide];
      store(largest[i], lanes);
      if (input_.cap != 0) {
        cap_products(input_, lanes, kWide);
        cap_products(input_, p_ + (lane + i) * step_ + stretch * kStretch,
                     rounded_up(end - stretch * kStretch));
      }
      largest_[stretch * block_.heads + lane + i] = *std::max_element(lanes, lanes + kWide);
    }
  }

  template <Elem elem, std::size_t queries>
  void weigh_values(std::size_t stretch, std::size_t lane) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(input_.dim));
    const std::size_t dim = input_.dim, first = stretch * kStretch;
    const std::size_t count = std::min(kStretch, block_.keys - first);
    float* p = p_ + lane * step_ + first;  // [queries, step_]
    for (std::size_t i = 0; i < queries; ++i) {
      const Wide largest = all_of(most(lane + i));
      for (std::size_t key = 0; key < count; key += kWide) {
        float* at = p + i * step_ + key;
        store(exp_of((load(at) - largest) * scale), at);
      }
    }
    float sums[queries] = {};
    for (std::size_t key = 0; key < count; ++key)
      for (std::size_t i = 0; i < queries; ++i) sums[i] += p[i * step_ + key];
    const std::size_t place = stretch * block_.heads + lane;
    std::copy_n(sums, queries, sums_ + place);

    const std::byte* values = stored_rows(input_, input_.v, kv_head_, block_.first_key + first);
    const auto add = [&]<std::size_t vectors>(std::integral_constant<std::size_t, vectors>,
                                              std::size_t channel) {
      Wide part[queries][vectors] = {};
      add_product_stored<elem, kCacheAhead>(p, step_, 1, values + channel * elem_bytes(elem), dim, count,
                                            part);
      for (std::size_t i = 0; i < queries; ++i)
        for (std::size_t v = 0; v < vectors; ++v)
          store(part[i][v], values_ + (place + i) * dim + channel + v * kWide);
    };
    std::size_t channel = 0;
    for (; channel + 4 * kWide <= dim; channel += 4 * kWide)
      add(std::integral_constant<std::size_t, 4>{}, channel);
    for (; channel < dim; channel += kWide) add(std::integral_constant<std::size_t, 1>{}, channel);
  }

  const AttentionInput& input_;
  Block block_;
  Scratch& scratch_;
  std::size_t kv_head_, step_;             // step_: floats between two lanes of p_
  float *p_, *largest_, *sums_, *values_;  // [heads, step_]; [stretches, heads]; the same; [..., dim]
};

/// Where the weight of a key in a lane lies in a block's scratch: at key * of_key + lane * of_lane.
struct Layout {
  std::size_t of_key, of_lane;
};

/// Whether lanes hold keys rather than queries.
bool by_heads(const AttentionInput& input, const Block& block) {
  return block.rows == 1 && block.heads < kWide && input.dim % kWide == 0;
}

/// Of queries in lanes: the lanes of one register for few queries.
Layout layout_of(const AttentionInput& input, const Block& block) {
  if (by_heads(input, block)) return {1, rounded_up(block.keys)};
  return {block.lanes() <= kWide ? kWide : kLanes, 1};
}

void attend_block(const AttentionInput& input, const Block& block, Scratch& scratch, float* out) {
  if (!by_heads(input, block)) {
    if (block.lanes() <= kWide) return attend_lanes<1>(input, block, scratch, out);
    return attend_lanes<kLaneVectors>(input, block, scratch, out);
  }
  RowByStretch row(input, block, scratch);
  for (std::size_t stretch = 0; stretch < row.stretches(); ++stretch) row.score(stretch);
  for (std::size_t stretch = 0; stretch < row.stretches(); ++stretch) row.weigh(stretch);
  row.finish(out);
}

/// The only row of the input, whose blocks are by_heads(), its stretches shared among threads.
void attend_token(Workers& workers, const AttentionInput& input, const Deal& deal, float* out) {
  const std::size_t parts = input.kv_heads * deal.parts;
  thread_local std::vector<Scratch> scratch;
  scratch.resize(std::max(scratch.size(), parts));
  std::vector<RowByStretch> rows;
  rows.reserve(parts);
  for (std::size_t part = 0; part < parts; ++part)
    rows.emplace_back(input, block_of(input, deal, part, 0), scratch[part]);
  const std::size_t stretches = rows[0].stretches(), of_row = tasks_of(stretches, kStretchesPerTask);
  const auto in_tasks = [&](void (RowByStretch::*step)(std::size_t)) {
    workers.run(parts * of_row, [&](std::size_t task) {
      const std::size_t first = task % of_row * kStretchesPerTask;
      for (std::size_t i = first; i < std::min(stretches, first + kStretchesPerTask); ++i)
        (rows[task / of_row].*step)(i);
    });
  };
  in_tasks(&RowByStretch::score);
  in_tasks(&RowByStretch::weigh);
  for (const RowByStretch& row : rows) row.finish(out);
}

/// Adds a block's probabilities to its heads' columns, in the order of rows.
void add_columns(const AttentionInput& input, const Block& block, Scratch& scratch,
                 const ColumnSums& columns) {
  const Layout layout = layout_of(input, block);
  const float* p = scratch.p();
  alignas(64) float square[kWide * kWide];  // [lane][key]
  for (std::size_t key = 0; key < block.keys; key += kWide) {
    const std::size_t count = std::min(kWide, block.keys - key);
    for (std::size_t lane = 0; lane < block.lanes(); ++lane) {
      const float* from = p + lane * layout.of_lane + key;
      if (layout.of_key > 1) {
        if (lane % kWide == 0) transpose(p + key * layout.of_key + lane, layout.of_key, square, kWide);
        from = square + lane % kWide * kWide;
      }
      const std::size_t at = (block.head + lane / block.rows) * columns.stride + block.first_key + key;
      for (std::size_t j = 0; j < count; ++j) {
        const auto value = static_cast<double>(from[j] * scratch.inverse[lane]);
        columns.sum[at + j] += value;
        columns.sum_squares[at + j] += value * value;
      }
    }
  }
}

/// Attends the rows of block `index` in every head, then passes those from `first_observed` on to `observe`.
void attend_observed(Workers& workers, const AttentionInput& input, const Deal& deal, std::size_t index,
                     float* out, std::size_t first_observed, const RowObserver& observe,
                     const ColumnSums& columns) {
  const std::size_t parts = input.kv_heads * deal.parts;
  std::vector<Scratch> scratch(parts);
  workers.run(parts, [&](std::size_t part) {
    const Block block = block_of(input, deal, part, index);
    attend_block(input, block, scratch[part], out);
    if (columns.sum != nullptr) add_columns(input, block, scratch[part], columns);
  });
  const Block shape = block_of(input, deal, 0, index);
  std::vector<float> row_of_heads;
  for (std::size_t row = 0; row < shape.rows; ++row) {
    if (shape.first + row < first_observed) continue;
    const std::size_t first_key = first_visible(input, shape.first + row);
    const std::size_t n_keys = input.past + shape.first + row + 1 - first_key;
    row_of_heads.clear();
    for (std::size_t part = 0; part < parts; ++part) {
      const Block block = block_of(input, deal, part, index);
      const Layout layout = layout_of(input, block);
      for (std::size_t lane = row; lane < block.lanes(); lane += block.rows) {
        const float* p =
            scratch[part].p() + (first_key - block.first_key) * layout.of_key + lane * layout.of_lane;
        for (std::size_t j = 0; j < n_keys; ++j)
          row_of_heads.push_back(p[j * layout.of_key] * scratch[part].inverse[lane]);
      }
    }
    observe(shape.first + row, first_key, n_keys, row_of_heads);
  }
}

}  // namespace

void attend(Workers& workers, const AttentionInput& input, float* out, std::uint64_t first_observed,
            const RowObserver& observe, const ColumnSums& columns) {
  const Deal deal(input);
  const std::size_t parts = input.kv_heads * deal.parts, blocks = tasks_of(input.n, deal.rows);
  const std::size_t unobserved = std::min<std::size_t>(blocks, first_observed / deal.rows);
  if (input.n == 1 && unobserved == 1 && columns.sum == nullptr &&
      by_heads(input, block_of(input, deal, 0, 0)))
    return attend_token(workers, input, deal, out);
  const auto attend_one = [&](std::size_t part, std::size_t index) {
    thread_local Scratch scratch;
    const Block block = block_of(input, deal, part, index);
    attend_block(input, block, scratch, out);
    if (columns.sum != nullptr) add_columns(input, block, scratch, columns);
  };
  if (columns.sum == nullptr) {
    // Starts with the longest blocks, so that no thread is left with one at the end.
    workers.run(unobserved * parts,
                [&](std::size_t task) { attend_one(task % parts, unobserved - 1 - task / parts); });
  } else {
    // Sums depend on their order, so one task computes a whole part.
    workers.run(parts, [&](std::size_t part) {
      for (std::size_t index = 0; index < unobserved; ++index) attend_one(part, index);
    });
  }
  for (std::size_t index = unobserved; index < blocks; ++index)
    attend_observed(workers, input, deal, index, out, first_observed, observe, columns);
}

}  // namespace kvsim::model::cpu
