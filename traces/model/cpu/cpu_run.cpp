#include "traces/model/cpu/cpu_run.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/workers.hpp"
#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/layer_halves.hpp"
#include "traces/model/cpu/linear_layer.hpp"
#include "traces/model/cpu/tile_product.hpp"
#include "traces/model/cpu/wide.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::model::cpu {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// Bytes of one layer's keys.
std::uint64_t layer_cache(const ModelConfig& config, const RunOptions& options) {
  return std::uint64_t{config.n_kv_heads} * options.capacity * config.head_dim * elem_bytes(options.elem);
}

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using CacheBytes = std::unique_ptr<std::byte[], Free>;

/// Memory that becomes pages as it fills: large ones where the system has them, because a step reads all of
/// it, and looking up small pages takes half of that time.
CacheBytes cache_bytes(std::uint64_t count) {
  constexpr std::uint64_t kLargePage = 1 << 21;
  const std::uint64_t bytes = tasks_of(count, kLargePage) * kLargePage;
  CacheBytes cache(static_cast<std::byte*>(std::aligned_alloc(kLargePage, bytes)));
  if (!cache) throw std::bad_alloc();
  ::madvise(cache.get(), bytes, MADV_HUGEPAGE);
  return cache;
}

/// Refuses a cache and column sums that together exceed this machine's memory: their allocation would
/// succeed, and the run would be killed later.
const RunOptions& checked(const ModelConfig& config, const RunOptions& options) {
  const double tensors = config.latent.rank > 0 ? 1 : 2;
  double of_token =
      tensors * config.n_kv_heads * config.head_dim * static_cast<double>(elem_bytes(options.elem));
  if (options.counts_columns) of_token += 2.0 * sizeof(double) * config.n_heads;
  const double needed = of_token * config.n_layers * static_cast<double>(options.capacity);
  const double available =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  if (needed > available) {
    const auto text = [](double bytes) {
      return bytes_text(static_cast<std::uint64_t>(std::min(bytes, 0x1p63)));
    };
    usage_error("a cache of " + std::to_string(options.capacity) + " tokens" +
                    (options.counts_columns ? " with column statistics" : "") + " needs " + text(needed) +
                    ", this machine has " + text(available),
                {}, "Shorten the prompt or lower --max-new-tokens.");
  }
  return options;
}

}  // namespace

struct CpuRun::State {
  State(const ModelConfig& config_in, const Weights& weights_in, const RunOptions& options_in)
      : config(config_in),
        weights(weights_in),
        options(checked(config_in, options_in)),
        workers(options_in.threads),
        frequencies(rope_frequencies(config_in.rope, options_in.capacity)),
        other_frequencies(config_in.other_rope ? rope_frequencies(*config_in.other_rope, options_in.capacity)
                                               : std::vector<float>()),
        layer_bytes(layer_cache(config_in, options_in)),
        keys(cache_bytes(layer_bytes * config_in.n_layers)),
        values(config_in.latent.rank > 0 ? nullptr : cache_bytes(layer_bytes * config_in.n_layers)) {}

  /// Where a head's keys or values are in `of`, from token `first` on.
  std::byte* cache(const CacheBytes& of, std::uint32_t layer, std::uint64_t head = 0,
                   std::uint64_t first = 0) {
    return of.get() + layer * layer_bytes +
           (head * options.capacity + first) * config.head_dim * elem_bytes(options.elem);
  }

  void embed(std::span<const std::int32_t> tokens);
  void layer_attention(std::uint32_t layer, const RopeTable& rope, RunObserver& observer,
                       std::future<void>& showing, PassTiming& timing);
  void layer_mlp(const LayerWeights& layer);
  void store(const std::vector<float>& rows, const CacheBytes& of, std::uint32_t layer);
  void count_pass();
  ColumnSums columns(std::uint32_t layer);
  /// Runs `call` of the observer and adds its time to observer_time.
  template <class Call>
  void show(Call call) {
    const auto start = Clock::now();
    call();
    observer_time += Clock::now() - start;
  }

  /// Waits until the observer has received the tensors of the layer; rethrows its exception.
  void settle(std::future<void>& showing) {
    if (showing.valid()) show([&] { showing.get(); });
  }

  const ModelConfig& config;
  const Weights& weights;
  RunOptions options;
  Workers workers;
  std::vector<float> frequencies, other_frequencies;
  std::uint64_t layer_bytes;                        // of one layer's keys
  CacheBytes keys, values;                          // [layers, kv_heads, capacity, head_dim] of options.elem;
                                                    // no values where keys have them
  std::uint64_t past = 0, n = 0;                    // tokens before and in the current pass
  std::uint64_t counted = 0;                        // tokens whose attention is in the column sums
  bool counting = false;                            // whether the current pass is counted
  std::unique_ptr<double[]> sums, sums_of_squares;  // [layers, heads, capacity], allocated by the first
                                                    // counted pass
  Clock::duration observer_time{};

  // Activations of the current pass. The residual stream is `hidden`; the others are scratch.
  std::vector<float> hidden, normed, projected, q, k, v, attended;
  std::vector<float> entered;       // what a parallel layer's feed-forward reads
  std::vector<float> temperatures;  // of queries, where layers have any
  FeedForwardSpace space;
};

void CpuRun::State::embed(std::span<const std::int32_t> tokens) {
  const std::uint64_t width = config.hidden_size;
  hidden.resize(n * width);
  for (std::uint64_t row = 0; row < n; ++row)
    embed_token(config, weights, tokens[row], past + row, hidden.data() + row * width);
}

/// Stores rows [kv_heads, n, dim], which are rounded to the cache's elements, in a layer's cache.
void CpuRun::State::store(const std::vector<float>& rows, const CacheBytes& of, std::uint32_t layer) {
  const std::uint64_t dim = config.head_dim;
  for (std::uint64_t head = 0; head < config.n_kv_heads; ++head)
    narrow(options.elem, rows.data() + head * n * dim, n * dim, cache(of, layer, head, past));
}

/// Prepares the column sums for counting the current pass.
void CpuRun::State::count_pass() {
  if (counted != past) bug("a pass is counted after one that was not", "model run");
  const std::uint64_t size = std::uint64_t{config.n_layers} * config.n_heads * options.capacity;
  if (!sums) {
    sums = std::make_unique<double[]>(size);
    sums_of_squares = std::make_unique<double[]>(size);
  }
  counted += n;
}

ColumnSums CpuRun::State::columns(std::uint32_t layer) {
  if (!counting) return {};
  const std::uint64_t offset = std::uint64_t{layer} * config.n_heads * options.capacity;
  return {sums.get() + offset, sums_of_squares.get() + offset, options.capacity};
}

void CpuRun::State::layer_attention(std::uint32_t layer, const RopeTable& rope, RunObserver& observer,
                                    std::future<void>& showing, PassTiming& timing) {
  const LayerWeights& w = weights.layers[layer];
  const auto eps = static_cast<float>(config.norm_eps);
  enter_halves(workers, config, w, hidden, n, normed, entered);

  const auto split = [&](const HeadTransform& transform, const float* rows, std::vector<float>& out) {
    out.resize(n * transform.heads * transform.dim);
    split_heads(workers, transform, rows, n, out.data());
  };
  const LayerHeads heads(config, w, rope, options.elem,
                         config.rotates(layer) ? std::span<const float>() : temperatures);
  if (w.latent) {
    latent_heads(workers, config, *w.latent, false, heads, normed.data(), n, projected, q, k, v);
  } else {
    projected.resize(n * (w.q.out + w.k.out + w.v.out));
    float *q_rows = projected.data(), *k_rows = q_rows + n * w.q.out, *v_rows = k_rows + n * w.k.out;
    apply_linear(workers, {{&w.q, q_rows}, {&w.k, k_rows}, {&w.v, v_rows}}, normed.data(), n);
    split(heads.queries, q_rows, q);
    split(heads.keys, k_rows, k);
    split({config.n_kv_heads, config.head_dim, {}, eps, nullptr, options.elem}, v_rows, v);
    store(v, values, layer);
  }
  store(k, keys, layer);
  // A single token is not worth a thread: settle() then runs the deferred call.
  showing = std::async(n > 1 ? std::launch::async : std::launch::deferred,
                       [this, layer, &observer] { observer.on_tensors(layer, past, n, q, k, v); });

  // The kernel multiplies by 1/sqrt(head_dim).
  std::vector<float> scaled;
  if (config.attention_scale != 0) {
    const auto factor = static_cast<float>(config.attention_scale * std::sqrt(config.head_dim));
    scaled = q;
    for (float& one : scaled) one *= factor;
  }
  const AttentionInput input{config.n_heads,
                             config.n_kv_heads,
                             config.head_dim,
                             config.layer_window[layer],
                             past,
                             n,
                             scaled.empty() ? q.data() : scaled.data(),
                             cache(keys, layer),
                             cache(w.latent ? keys : values, layer),
                             options.capacity,
                             options.elem,
                             static_cast<float>(config.attention_cap),
                             w.sinks.empty() ? nullptr : w.sinks.data(),
                             config.chunked};
  const std::uint64_t wanted = observer.first_attention_row();
  const std::uint64_t first_observed = wanted <= past ? 0 : std::min(n, wanted - past);
  if (first_observed < n) settle(showing);
  attended.resize(n * config.n_heads * config.head_dim);
  const auto observer_before = observer_time;
  const auto start = Clock::now();
  attend(
      workers, input, attended.data(),
      first_observed == n ? std::numeric_limits<std::uint64_t>::max() : first_observed,
      [&](std::uint64_t row, std::uint64_t first_key, std::uint64_t n_keys, std::span<const float> p) {
        show([&] { observer.on_attention(layer, past + row, first_key, n_keys, p); });
      },
      columns(layer));
  timing.attention.push_back(
      static_cast<float>(nanoseconds(Clock::now() - start - (observer_time - observer_before))));

  if (w.latent) {
    latent_outputs(workers, config, *w.latent, false, attended, config.head_dim, n, projected);
    attended.swap(projected);
  }
  apply_linear(workers, w.o, attended.data(), n, normed.data());
  leave_half(workers, config, w.attention_out_norm, normed, n, hidden);
}

void CpuRun::State::layer_mlp(const LayerWeights& w) {
  if (config.parallel)
    normed.swap(entered);
  else
    enter_half(workers, config, w.mlp_norm, hidden, n, normed);
  feed_forward(workers, config, w, false, n, normed, space);
  leave_half(workers, config, w.mlp_out_norm, normed, n, hidden);
}

CpuRun::CpuRun(const ModelConfig& config, const Weights& weights, const RunOptions& options)
    : state_(std::make_unique<State>(config, weights, options)) {}
CpuRun::~CpuRun() = default;

std::uint64_t CpuRun::length() const {
  return state_->past + state_->n;
}
unsigned CpuRun::threads() const {
  return state_->workers.threads();
}

ColumnStatistics CpuRun::column_statistics(std::uint32_t layer) const {
  const State& s = *state_;
  ColumnStatistics out{s.counted, {}, {}};
  out.sum.reserve(s.config.n_heads * s.counted);
  out.sum_squares.reserve(s.config.n_heads * s.counted);
  for (std::uint64_t head = 0; s.counted > 0 && head < s.config.n_heads; ++head) {
    const std::uint64_t offset = (std::uint64_t{layer} * s.config.n_heads + head) * s.options.capacity;
    for (std::uint64_t key = 0; key < s.counted; ++key) {
      out.sum.push_back(static_cast<float>(s.sums[offset + key]));
      out.sum_squares.push_back(static_cast<float>(s.sums_of_squares[offset + key]));
    }
  }
  return out;
}

trace::Capture CpuRun::describe() const {
  trace::Capture capture = describe_processor(threads());
  // The number of lanes decides in which order sums are rounded.
  capture.math_mode += ", " + std::to_string(kWide) + " lanes";
  if (tiles_available()) capture.math_mode += ", bf16 weights on matrix tiles";
  return capture;
}

void CpuRun::resume(std::uint32_t layer, std::uint32_t kv_head, std::span<const float> keys,
                    std::span<const float> values) {
  State& s = *state_;
  if (s.past > 0 || keys.size() / s.config.head_dim > s.options.capacity) bug("not the start of a run");
  s.n = keys.size() / s.config.head_dim;
  narrow(s.options.elem, keys.data(), keys.size(), s.cache(s.keys, layer, kv_head));
  if (s.values) narrow(s.options.elem, values.data(), values.size(), s.cache(s.values, layer, kv_head));
}

PassTiming CpuRun::forward(std::span<const std::int32_t> tokens, RunObserver& observer) {
  State& s = *state_;
  s.past += s.n;
  s.n = tokens.size();
  if (s.past + s.n > s.options.capacity) bug("more tokens than the cache holds", "model run");
  s.counting = observer.counts_columns(s.past);
  if (s.counting) s.count_pass();
  s.observer_time = {};
  PassTiming timing;
  const auto start = Clock::now();
  s.embed(tokens);
  const RopeTable rope = rope_table(s.frequencies, s.config.rope.attention_factor, s.past, s.n);
  RopeTable other;
  if (s.config.other_rope)
    other = rope_table(s.other_frequencies, s.config.other_rope->attention_factor, s.past, s.n);
  s.temperatures.clear();
  for (std::uint64_t row = 0; row < s.n && s.config.temperature_floor != 0; ++row)
    s.temperatures.push_back(query_temperature(s.config, s.past + row));
  for (std::uint32_t layer = 0; layer < s.config.n_layers; ++layer) {
    const auto layer_start = Clock::now();
    const auto observer_before = s.observer_time;
    std::future<void> showing;  // the observer's call with q, k and v; its destructor waits, also after an
                                // exception
    s.layer_attention(layer, s.config.rotates_apart(layer) ? other : rope, observer, showing, timing);
    s.layer_mlp(s.weights.layers[layer]);
    s.settle(showing);
    timing.layer.push_back(
        static_cast<float>(nanoseconds(Clock::now() - layer_start - (s.observer_time - observer_before))));
    if (observer.wants_layer_output()) s.show([&] { observer.on_layer_output(layer, s.hidden); });
  }
  timing.total = nanoseconds(Clock::now() - start - s.observer_time);
  return timing;
}

std::vector<float> CpuRun::logits(std::uint64_t rows) {
  State& s = *state_;
  const std::uint64_t width = s.config.hidden_size;
  std::vector<float> normed(rows * width), out(rows * s.config.vocab_size);
  apply_norm(s.workers, s.config, s.hidden.data() + (s.n - rows) * width, rows, s.weights.norm,
             normed.data());
  apply_linear(s.workers, s.weights.head, normed.data(), rows, out.data());
  finish_logits(s.config, out);
  return out;
}

}  // namespace kvsim::model::cpu
