#include "traces/model/cuda/cuda_run.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "traces/model/cuda/activations.hpp"
#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_attention.hpp"
#include "traces/model/cuda/device_kernels.hpp"
#include "traces/model/cuda/device_weights.hpp"
#include "traces/model/cuda/hand_over.hpp"
#include "traces/model/cuda/matrix_product.hpp"
#include "traces/model/cuda/pass_clock.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr std::uint64_t kFewestPieces = 4;                      // handed to the observer at a time
constexpr std::uint64_t kHandOver = std::uint64_t{1} << 30;     // bytes of further ones
constexpr std::uint64_t kRowsPiece = std::uint64_t{32} << 20;   // bytes of attention rows in one piece
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 28;   // byte counts cannot overflow below
constexpr std::uint64_t kLibraries = std::uint64_t{256} << 20;  // code and handles of cuBLAS 11 to 13
constexpr std::uint64_t kScores = std::uint64_t{256} << 20;     // bytes that attention may always take
constexpr std::uint64_t kScoresShare = 8;                       // the part of the device's it may take

Stored stored(Elem elem) {
  return elem == Elem::f32 ? Stored::f32 : elem == Elem::f16 ? Stored::f16 : Stored::bf16;
}

/// Bytes of attention's workspace: those of a whole block of queries of the longest context. Where they
/// exceed the limit, the block is halved until they do not, but has at least one query. The limit is kScores,
/// or on a device with much memory a share of it, but no more than half of what the `others` bytes of the run
/// leave. It is the same however much other processes take: blocks of other sizes may have other bits.
template <class T>
std::uint64_t score_bytes(const ModelConfig& config, const RunOptions& options, std::uint64_t memory,
                          std::uint64_t others) {
  const std::uint64_t left = memory - std::min(memory, others);
  const std::uint64_t limit = std::max(kScores, std::min(memory / kScoresShare, left / 2));
  const auto bytes = [&](std::uint64_t queries) {
    return DeviceAttention<T>::bytes_of_block(config.n_heads, config.head_dim, queries, options.capacity);
  };
  std::uint64_t queries = std::min(options.pass_tokens, DeviceAttention<T>::kMostQueries);
  while (queries > 1 && bytes(queries) > limit) queries = (queries + 1) / 2;
  return bytes(queries);
}

/// Bytes of what a layer hands out of a pass of the prompt.
template <class T>
std::uint64_t piece_bytes(const ModelConfig& config, const RunOptions& options) {
  return options.pass_tokens * (query_width(config) + 2 * kv_width(config)) * sizeof(T);
}

/// Pieces that may wait for the observer: those of a whole pass, if they take no more than kHandOver, so that
/// an observer that is slower for a while does not stop the device.
template <class T>
std::uint64_t pieces_in_flight(const ModelConfig& config, const RunOptions& options) {
  const std::uint64_t fit = kHandOver / piece_bytes<T>(config, options);
  return std::max(kFewestPieces, std::min<std::uint64_t>(fit, config.n_layers));
}

RunOptions with_pass(RunOptions options) {
  if (options.pass_tokens == 0 || options.pass_tokens > options.capacity)
    options.pass_tokens = options.capacity;
  return options;
}

/// The device memory that a run needs, computed before any of it is allocated.
struct MemoryNeed {
  std::uint64_t weights = 0;    ///< bytes
  std::uint64_t cache = 0;      ///< keys, values and column statistics
  std::uint64_t workspace = 0;  ///< of one pass, and of the libraries
  std::uint64_t scores = 0;     ///< the workspace of attention

  std::uint64_t total() const { return weights + cache + workspace + scores; }
};

/// Throws Error(usage) with the numbers, and the options to lower, when the need exceeds the `free` bytes of
/// `device`.
void require_memory(const MemoryNeed& need, std::uint64_t free, const DeviceDescription& device,
                    const RunOptions& options) {
  if (need.total() <= free) return;
  std::string hint = "Lower --prefill-chunk, --max-new-tokens or the prompt";
  if (options.compute == Elem::f32) hint += ", or add --compute bf16";
  usage_error("the run needs " + bytes_text(need.total()) + " of the device's memory (weights " +
                  bytes_text(need.weights) + ", cache of " + std::to_string(options.capacity) + " tokens " +
                  bytes_text(need.cache) + ", workspace for passes of " +
                  std::to_string(options.pass_tokens) + " tokens " +
                  bytes_text(need.workspace + need.scores) + "), but " + bytes_text(free) + " of " +
                  bytes_text(device.memory) + " are free",
              "cuda:" + std::to_string(device.index) + ", " + device.name, hint + ".");
}

template <class T>
class CudaRun final : public ModelRun {
 public:
  CudaRun(const DeviceDescription& device, const ModelConfig& config, const Weights& weights,
          const RunOptions& options, const MemoryNeed& need)
      : device_(device),
        config_(config),
        options_(options),
        frequencies_(rope_frequencies(config.rope, options.capacity)),
        weights_(upload_weights<T>(weights, compute_)),
        layer_cache_(kv_width(config) * options.capacity),
        keys_(layer_cache_ * config.n_layers, "the cache of keys"),
        values_(layer_cache_ * config.n_layers, "the cache of values"),
        pass_(config, options.pass_tokens),
        product_(compute_),
        attention_(config.n_heads, config.head_dim, options.capacity, need.scores),
        hand_over_(pieces_in_flight<T>(config, options), piece_bytes<T>(config, options), device.index) {
    warm_up();
  }

  static MemoryNeed need(const ModelConfig& config, const Weights& weights, const RunOptions& options,
                         std::uint64_t memory) {
    MemoryNeed need{device_bytes<T>(weights), cache_bytes(config, options),
                    Activations<T>::bytes(config, options.pass_tokens) + kLibraries, 0};
    need.scores = score_bytes<T>(config, options, memory, need.total());
    return need;
  }

  PassTiming forward(std::span<const std::int32_t> tokens, RunObserver& observer) override;
  PassTiming forward_ahead(std::span<const std::int32_t> tokens, RunObserver& observer) override;
  void settle() override { hand_over_.drain(); }
  void abandon() noexcept override { hand_over_.abandon(); }
  std::uint64_t length() const override { return past_ + n_; }
  std::vector<float> logits(std::uint64_t rows) override;
  TokenChoice most_probable() override;
  ColumnStatistics column_statistics(std::uint32_t layer) const override;
  trace::Capture describe() const override;

 private:
  static std::uint64_t cache_bytes(const ModelConfig& config, const RunOptions& options) {
    std::uint64_t of_token = 2 * kv_width(config) * sizeof(T);
    if (options.counts_columns) of_token += 2 * config.n_heads * sizeof(double);
    return of_token * options.capacity * config.n_layers;
  }

  void warm_up();
  void embed(std::span<const std::int32_t> tokens);
  void count_pass();
  void layer_attention(std::uint32_t layer, RunObserver& observer);
  void layer_mlp(std::uint32_t layer);
  PassTiming run_pass(std::span<const std::int32_t> tokens, RunObserver& observer);
  void last_logits(std::uint64_t first, std::uint64_t n);
  void project(const DeviceLinear<T>& linear, const T* x, std::uint64_t n, T* y);
  void add_projection(const DeviceLinear<T>& linear, const T* x);
  void show_tensors(std::uint32_t layer, RunObserver& observer);
  void show_rows(std::uint32_t layer, const AttentionRows& rows, RunObserver& observer);
  void show_hidden(std::uint32_t layer, RunObserver& observer);
  std::byte* begin_piece(std::uint64_t bytes, Span so_far, std::uint32_t layer);

  T* cache(const DeviceArray<T>& of, std::uint32_t layer) const { return of.data() + layer * layer_cache_; }

  DeviceDescription device_;
  const ModelConfig& config_;
  RunOptions options_;
  std::vector<float> frequencies_;
  RopeTable rope_;  // of the current pass: copies to the device may still read it
  Stream compute_, copies_;
  DeviceWeights<T> weights_;
  std::uint64_t layer_cache_;                        // number of elements of one layer's keys
  DeviceArray<T> keys_, values_;                     // [layers, kv_heads, capacity, head_dim]
  DeviceArray<double> column_sum_, column_squares_;  // [layers, heads, capacity], allocated by the first
                                                     // counted pass
  Activations<T> pass_;
  MatrixProduct product_;
  DeviceAttention<T> attention_;
  PassClock clock_;
  Event computed_;                  // the data that is copied out next
  std::array<Event, 2> copied_;     // pass_.queries[i] has been copied out
  std::uint64_t past_ = 0, n_ = 0;  // tokens before and in the current pass
  std::uint64_t counted_ = 0;       // tokens whose attention is in the column sums
  bool counting_ = false;           // whether the current pass is counted
  HandOver hand_over_;              // last member: its destructor waits for copies in progress
};

/// y [n, out] = x [n, in] W^T + b.
template <class T>
void CudaRun<T>::project(const DeviceLinear<T>& linear, const T* x, std::uint64_t n, T* y) {
  const bool biased = linear.bias.size() > 0;
  if (biased) repeat_row(linear.bias.data(), n, linear.out, y, compute_.get());
  product_.linear(x, n, linear.in, linear.weight.data(), linear.out, y,
                  biased ? Result::added_to : Result::replaced);
}

/// Adds a projection of x to the residual stream.
template <class T>
void CudaRun<T>::add_projection(const DeviceLinear<T>& linear, const T* x) {
  T* hidden = pass_.hidden.data();
  if (linear.bias.size() == 0) {
    product_.linear(x, n_, linear.in, linear.weight.data(), linear.out, hidden, Result::added_to);
    return;
  }
  project(linear, x, n_, pass_.projected.data());
  add_to(hidden, pass_.projected.data(), n_ * linear.out, compute_.get());
}

/// Runs one layer and the output on as many tokens as a pass of the prompt has, and on one: kernels, cuBLAS's
/// among them, are loaded when they are first started, which should not count as time of the first pass. What
/// it leaves in the cache is overwritten.
template <class T>
void CudaRun<T>::warm_up() {
  struct Nobody : RunObserver {
    bool wants_tensors() const override { return false; }
  } nobody;
  const std::vector<std::int32_t> tokens(options_.pass_tokens, 0);
  for (const std::uint64_t n : {options_.pass_tokens, std::uint64_t{1}}) {
    n_ = n;
    clock_.start(compute_);
    embed(std::span(tokens).first(n));
    layer_attention(0, nobody);
    layer_mlp(0);
    last_logits(n - 1, 1);
    compute_.synchronize();
  }
  n_ = 0;
}

template <class T>
void CudaRun<T>::embed(std::span<const std::int32_t> tokens) {
  copy_to_device(pass_.ids.data(), tokens.data(), tokens.size_bytes(), compute_);
  gather_rows(weights_.embedding.weight.data(), pass_.ids.data(), n_, config_.hidden_size,
              pass_.hidden.data(), compute_.get());
  rope_ = rope_table(frequencies_, config_.rope.attention_factor, past_, n_);
  copy_to_device(pass_.cosine.data(), rope_.cosine.data(), rope_.cosine.size() * sizeof(float), compute_);
  copy_to_device(pass_.sine.data(), rope_.sine.data(), rope_.sine.size() * sizeof(float), compute_);
}

/// Prepares the column sums for counting the current pass.
template <class T>
void CudaRun<T>::count_pass() {
  if (counted_ != past_) bug("a pass is counted after one that was not", "model run");
  if (column_sum_.size() == 0) {
    const std::uint64_t size = std::uint64_t{config_.n_layers} * config_.n_heads * options_.capacity;
    column_sum_ = DeviceArray<double>(size, "column statistics");
    column_squares_ = DeviceArray<double>(size, "column statistics");
    zero(column_sum_.data(), size * sizeof(double), compute_);
    zero(column_squares_.data(), size * sizeof(double), compute_);
  }
  counted_ += n_;
}

/// The buffer for the next piece to hand out. Waiting for it does not count as the model's time.
template <class T>
std::byte* CudaRun<T>::begin_piece(std::uint64_t bytes, Span so_far, std::uint32_t layer) {
  if (!hand_over_.full()) return hand_over_.begin(bytes);
  clock_.mark(compute_, so_far, layer);
  std::byte* place = hand_over_.begin(bytes);
  clock_.mark(compute_, Span::waiting);
  return place;
}

/// Copies q, k and v of the layer out on a separate stream while the device continues to compute.
template <class T>
void CudaRun<T>::show_tensors(std::uint32_t layer, RunObserver& observer) {
  const std::uint64_t q_size = observer.wants_queries(past_, n_) ? n_ * query_width(config_) : 0;
  const std::uint64_t kv_size = n_ * kv_width(config_);
  std::byte* place = begin_piece((q_size + 2 * kv_size) * sizeof(T), Span::layer, layer);
  computed_.record(compute_);
  computed_.hold(copies_);
  if (q_size > 0) copy_from_device(place, pass_.queries[layer % 2].data(), q_size * sizeof(T), copies_);
  const std::uint64_t head = config_.head_dim * sizeof(T);
  std::byte* to = place + q_size * sizeof(T);
  for (const DeviceArray<T>* of : {&keys_, &values_}) {
    copy_rows_from_device(to, n_ * head, cache(*of, layer) + past_ * config_.head_dim,
                          options_.capacity * head, n_ * head, config_.n_kv_heads, copies_);
    to += kv_size * sizeof(T);
  }
  copied_[layer % 2].record(copies_);
  hand_over_.submit(
      copies_, [&observer, layer, first = past_, n = n_, q_size, kv_size](const std::byte* data) {
        const Elements all(kElemOf<T>, data, q_size + 2 * kv_size);
        observer.on_tensors(layer, first, n, all.subspan(0, q_size), all.subspan(q_size, kv_size),
                            all.subspan(q_size + kv_size, kv_size));
      });
}

/// Hands out the rows in pieces of bounded size; the observer's thread then assembles each row from its
/// heads.
template <class T>
void CudaRun<T>::show_rows(std::uint32_t layer, const AttentionRows& rows, RunObserver& observer) {
  const std::uint64_t heads = config_.n_heads, row_bytes = rows.pitch * sizeof(float);
  const std::uint64_t step = std::max<std::uint64_t>(1, kRowsPiece / (heads * row_bytes));
  const std::int64_t window = config_.layer_window[layer];
  clock_.mark(compute_, Span::attention, layer);
  for (std::uint64_t done = 0; done < rows.rows; done += step) {
    const std::uint64_t n = std::min(step, rows.rows - done);
    std::byte* place = begin_piece(heads * n * row_bytes, Span::waiting, layer);
    copy_rows_from_device(place, n * row_bytes, rows.p + done * rows.pitch, rows.rows * row_bytes,
                          n * row_bytes, heads, compute_);
    const std::uint64_t position = rows.first_position + done;
    hand_over_.submit(compute_,
                      [=, &observer, first_key = rows.first_key, pitch = rows.pitch](const std::byte* data) {
                        const auto* p = reinterpret_cast<const float*>(data);
                        std::vector<float> row_of_heads;
                        for (std::uint64_t row = 0; row < n; ++row) {
                          const std::uint64_t end = position + row + 1;
                          const std::uint64_t from = window >= 0 && end > static_cast<std::uint64_t>(window)
                                                         ? end - static_cast<std::uint64_t>(window)
                                                         : 0;
                          row_of_heads.resize(heads * (end - from));
                          for (std::uint64_t head = 0; head < heads; ++head) {
                            std::copy_n(p + (head * n + row) * pitch + (from - first_key), end - from,
                                        row_of_heads.data() + head * (end - from));
                          }
                          observer.on_attention(layer, position + row, from, end - from, row_of_heads);
                        }
                      });
  }
  clock_.mark(compute_, Span::waiting);
}

template <class T>
void CudaRun<T>::show_hidden(std::uint32_t layer, RunObserver& observer) {
  const std::uint64_t size = n_ * config_.hidden_size;
  std::byte* place = begin_piece(size * sizeof(T), Span::waiting, layer);
  copy_from_device(place, pass_.hidden.data(), size * sizeof(T), compute_);
  hand_over_.submit(compute_, [&observer, layer, size](const std::byte* data) {
    observer.on_layer_output(layer, Elements(kElemOf<T>, data, size).floats());
  });
}

template <class T>
void CudaRun<T>::layer_attention(std::uint32_t layer, RunObserver& observer) {
  const DeviceLayer<T>& w = weights_.layers[layer];
  const auto eps = static_cast<float>(config_.norm_eps);
  rms_norm(pass_.hidden.data(), n_, config_.hidden_size, w.attention_norm.data(), eps, pass_.normed.data(),
           compute_.get());

  HeadScatter scatter;
  scatter.dim = config_.head_dim;
  scatter.n = n_;
  scatter.eps = eps;
  scatter.round_to = stored(options_.elem);
  const auto scattered = [&](const DeviceLinear<T>& linear, std::uint32_t heads, T* to) {
    project(linear, pass_.normed.data(), n_, pass_.projected.data());
    scatter.heads = heads;
    split_heads(scatter, pass_.projected.data(), to, compute_.get());
  };
  scatter.capacity = options_.capacity;
  scatter.first = past_;
  scattered(w.v, config_.n_kv_heads, cache(values_, layer));
  scatter.cosine = pass_.cosine.data();
  scatter.sine = pass_.sine.data();
  scatter.rotary = config_.rope.rotary_dim;
  scatter.norm = w.k_norm.data();
  scattered(w.k, config_.n_kv_heads, cache(keys_, layer));
  scatter.norm = w.q_norm.data();
  scatter.capacity = n_;
  scatter.first = 0;
  copied_[layer % 2].hold(compute_);  // queries of the layer before the previous one
  scattered(w.q, config_.n_heads, pass_.queries[layer % 2].data());
  if (observer.wants_tensors()) show_tensors(layer, observer);

  DeviceAttentionInput<T> input;
  input.heads = config_.n_heads;
  input.kv_heads = config_.n_kv_heads;
  input.dim = config_.head_dim;
  input.window = config_.layer_window[layer];
  input.past = past_;
  input.n = n_;
  input.q = pass_.queries[layer % 2].data();
  input.k = cache(keys_, layer);
  input.v = cache(values_, layer);
  input.capacity = options_.capacity;
  const std::uint64_t wanted = observer.first_attention_row();
  const std::uint64_t first_observed = wanted <= past_ ? 0 : std::min(n_, wanted - past_);
  ColumnSums columns;
  if (counting_) {
    const std::uint64_t offset = std::uint64_t{layer} * config_.n_heads * options_.capacity;
    columns = {column_sum_.data() + offset, column_squares_.data() + offset, options_.capacity};
  }
  clock_.mark(compute_, Span::layer, layer);
  attention_.attend(
      product_, compute_, input, pass_.attended.data(), first_observed,
      [&](const AttentionRows& rows) { show_rows(layer, rows, observer); }, columns);
  clock_.mark(compute_, Span::attention, layer);
  add_projection(w.o, pass_.attended.data());
}

template <class T>
void CudaRun<T>::layer_mlp(std::uint32_t layer) {
  const DeviceLayer<T>& w = weights_.layers[layer];
  rms_norm(pass_.hidden.data(), n_, config_.hidden_size, w.mlp_norm.data(),
           static_cast<float>(config_.norm_eps), pass_.normed.data(), compute_.get());
  project(w.gate, pass_.normed.data(), n_, pass_.gate.data());
  project(w.up, pass_.normed.data(), n_, pass_.up.data());
  swiglu(pass_.gate.data(), pass_.up.data(), n_ * w.gate.out, compute_.get());
  add_projection(w.down, pass_.gate.data());
}

template <class T>
PassTiming CudaRun<T>::forward(std::span<const std::int32_t> tokens, RunObserver& observer) {
  const PassTiming timing = forward_ahead(tokens, observer);
  settle();
  return timing;
}

template <class T>
PassTiming CudaRun<T>::forward_ahead(std::span<const std::int32_t> tokens, RunObserver& observer) {
  past_ += n_;
  n_ = tokens.size();
  if (past_ + n_ > options_.capacity) bug("more tokens than the cache holds", "model run");
  if (n_ > options_.pass_tokens) bug("a longer pass than workspace was set aside for", "model run");
  counting_ = observer.counts_columns(past_);
  if (counting_) count_pass();
  try {
    return run_pass(tokens, observer);
  } catch (...) {
    abandon();
    throw;
  }
}

template <class T>
PassTiming CudaRun<T>::run_pass(std::span<const std::int32_t> tokens, RunObserver& observer) {
  clock_.start(compute_);
  embed(tokens);
  clock_.mark(compute_, Span::other);
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    layer_attention(layer, observer);
    layer_mlp(layer);
    clock_.mark(compute_, Span::layer, layer);
    if (observer.wants_layer_output()) {
      show_hidden(layer, observer);
      clock_.mark(compute_, Span::waiting);
    }
  }
  return clock_.read(config_.n_layers);
}

/// Computes the logits of the pass's tokens [first, first + n), on the device.
template <class T>
void CudaRun<T>::last_logits(std::uint64_t first, std::uint64_t n) {
  const std::uint64_t width = config_.hidden_size;
  const DeviceLinear<T>& head = weights_.output();
  rms_norm(pass_.hidden.data() + first * width, n, width, weights_.norm.data(),
           static_cast<float>(config_.norm_eps), pass_.normed.data(), compute_.get());
  product_.linear(pass_.normed.data(), n, head.in, head.weight.data(), head.out, pass_.logits.data());
}

template <class T>
std::vector<float> CudaRun<T>::logits(std::uint64_t rows) {
  const std::uint64_t vocab = config_.vocab_size;
  std::vector<float> all(rows * vocab);
  for (std::uint64_t done = 0; done < rows; done += kLogitRows) {
    const std::uint64_t n = std::min(kLogitRows, rows - done);
    last_logits(n_ - rows + done, n);
    copy_from_device(all.data() + done * vocab, pass_.logits.data(), n * vocab * sizeof(float), compute_);
  }
  compute_.synchronize();
  return all;
}

template <class T>
TokenChoice CudaRun<T>::most_probable() {
  last_logits(n_ - 1, 1);
  choose_greedily(pass_.logits.data(), 1, config_.vocab_size, pass_.chosen.data(), compute_.get());
  Greedy chosen{};
  copy_from_device(&chosen, pass_.chosen.data(), sizeof chosen, compute_);
  compute_.synchronize();
  return {chosen.id, chosen.logit - chosen.log_sum_exp};
}

template <class T>
ColumnStatistics CudaRun<T>::column_statistics(std::uint32_t layer) const {
  ColumnStatistics statistics{counted_, {}, {}};
  if (counted_ == 0) return statistics;
  const std::uint64_t heads = config_.n_heads;
  std::vector<double> sums(heads * counted_);
  const auto fetch = [&](const DeviceArray<double>& of, std::vector<float>& to) {
    copy_rows_from_device(sums.data(), counted_ * sizeof(double),
                          of.data() + layer * heads * options_.capacity, options_.capacity * sizeof(double),
                          counted_ * sizeof(double), heads, compute_);
    compute_.synchronize();
    to.assign(sums.begin(), sums.end());
  };
  fetch(column_sum_, statistics.sum);
  fetch(column_squares_, statistics.sum_squares);
  return statistics;
}

template <class T>
trace::Capture CudaRun<T>::describe() const {
  trace::Capture capture = describe_processor(1);
  capture.source = "native-cuda";
  capture.device_name = device_.name;
  capture.device_kind = "cuda";
  capture.driver = "CUDA " + version_text(device_.driver);
  capture.cuda_version = version_text(device_.runtime);
  capture.compute_dtype = elem_name(kElemOf<T>);
  capture.accum_dtype = "f32";
  capture.math_mode = product_.describe();
  capture.attention_kernel = "softmax over query blocks";
  capture.rope_fp32 = true;
  return capture;
}

template <class T>
std::unique_ptr<ModelRun> open_as(const DeviceDescription& device, const ModelConfig& config,
                                  const Weights& weights, const RunOptions& options) {
  const MemoryNeed need = CudaRun<T>::need(config, weights, options, device.memory);
  require_memory(need, device_memory().free, device, options);
  return std::make_unique<CudaRun<T>>(device, config, weights, options, need);
}

}  // namespace

std::unique_ptr<ModelRun> open_cuda_run(unsigned index, const ModelConfig& config, const Weights& weights,
                                        const RunOptions& options) {
  if (options.compute == Elem::f16 || (options.compute == Elem::bf16 && options.elem != Elem::bf16))
    bug("arithmetic and cache of types that do not go together", "model run");
  if (options.capacity > kMostTokens) {
    usage_error("a cache of " + std::to_string(options.capacity) + " tokens is beyond any device", {},
                "Shorten the prompt or lower --max-new-tokens.");
  }
  const DeviceDescription device = open_device(index);
  const RunOptions complete = with_pass(options);
  if (options.compute == Elem::bf16) return open_as<Bf16>(device, config, weights, complete);
  return open_as<float>(device, config, weights, complete);
}

}  // namespace kvsim::model::cuda
