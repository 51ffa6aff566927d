#include "traces/capture/second_pass.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/error.hpp"
#include "sim/base/exponentials.hpp"
#include "sim/base/workers.hpp"
#include "traces/capture/prompt.hpp"
#include "traces/format/hdf5_output.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/cpu/layer_halves.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::capture {
namespace {

using Ids = std::vector<std::int32_t>;

/// A stretch of positions that is repeated at once, and the tokens that the model is fed for it.
struct Repeated {
  std::uint64_t begin = 0, end = 0;
  Ids fed{};
};

std::int32_t id_at(const trace::Sequence& run, std::uint64_t position) {
  return run.source().header().token_id[run.token(position)];
}

bool is_markup(const trace::Sequence& run, std::uint64_t position) {
  return (run.flags(position) & workload::kFlagMarkup) != 0;
}

/// `at_once`: positions that are repeated together.
std::vector<Repeated> repeated_chunks(const trace::Sequence& run, const model::Tokenizer& tokenizer,
                                      std::uint64_t at_once) {
  constexpr std::uint64_t kReminder = 8;  // tokens of a chunk that the request for the next one quotes
  const std::uint64_t prompt = run.prompt_length(), whole = run.recorded_prompt_length();
  std::uint64_t begin = 0, end = prompt, closing = whole;
  while (begin < prompt && is_markup(run, begin)) ++begin;
  while (closing > begin && is_markup(run, closing - 1)) --closing;
  end = std::min(end, closing);
  if (begin >= end) usage_error("holds no text that the model could repeat", run.source().name());
  Ids answer_begins;
  for (std::uint64_t position = closing; position < whole; ++position)
    answer_begins.push_back(id_at(run, position));
  if (answer_begins.empty()) answer_begins = tokenizer.encode("\n", false);

  std::vector<Repeated> out;
  for (std::uint64_t first = begin; first < end; first += at_once) {
    Repeated chunk{first, std::min(end, first + at_once), {}};
    chunk.fed =
        tokenizer.encode(out.empty() ? "\n\nRepeat the previous context exactly."
                                     : "\n\nRepeat the part of the previous context exactly, starting with ",
                         false);
    const auto append = [&](std::uint64_t from, std::uint64_t to) {
      for (std::uint64_t position = from; position < to; ++position)
        chunk.fed.push_back(id_at(run, position));
    };
    if (!out.empty()) append(first - std::min(kReminder, at_once), first);
    chunk.fed.insert(chunk.fed.end(), answer_begins.begin(), answer_begins.end());
    append(chunk.begin, chunk.end);
    out.push_back(std::move(chunk));
  }
  return out;
}

/// The keys that rows of a chunk see in one KV head, one after the other: template, chunk, pass so far.
struct SeenKeys {
  std::uint64_t before = 0, chunk = 0;  ///< of the template, of the chunk
  std::vector<float> rows{};            ///< [before + chunk + pass so far, head_dim]
};

/// Sees the rows of a chunk, pass by pass.
class ChunkObserver final : public model::RunObserver {
 public:
  ChunkObserver(const trace::Sequence& run, const model::ModelConfig& config, const model::Weights& weights,
                unsigned threads, std::uint64_t template_end, SecondPass& out)
      : run_(run),
        model_(run.model()),
        config_(config),
        weights_(weights),
        workers_(threads),
        template_end_(template_end),
        out_(out) {}

  void begin(const Repeated& chunk) {
    chunk_ = &chunk;
    asking_ = chunk.fed.size() - (chunk.end - chunk.begin);
    seen_.assign(std::size_t{model_.n_layers} * model_.n_kv_heads, {});
    workers_.run(seen_.size(), [&](std::size_t lane) {
      const auto layer = static_cast<std::uint32_t>(lane / model_.n_kv_heads),
                 head = static_cast<std::uint32_t>(lane % model_.n_kv_heads);
      SeenKeys& seen = seen_[lane];
      seen.before = template_end_;
      seen.chunk = chunk.end - chunk.begin;
      const std::size_t dim = model_.head_dim;
      seen.rows.resize((seen.before + seen.chunk) * dim);
      const std::span<float> rows(seen.rows);
      run_.read(trace::Tensor::key, layer, head, 0, seen.before, rows.first(seen.before * dim));
      run_.read(trace::Tensor::key, layer, head, chunk.begin, seen.chunk, rows.subspan(seen.before * dim));
    });
  }

  /// The tokens of the next pass of the model, the first of them at `position`.
  void enter(std::span<const std::int32_t> tokens, std::uint64_t position) {
    first_ = position - run_.prompt_length();
    std::vector<float> hidden(tokens.size() * config_.hidden_size);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      model::cpu::embed_token(config_, weights_, tokens[i], position + i,
                              hidden.data() + i * config_.hidden_size);
    measure(0, hidden);
  }

  void on_tensors(std::uint32_t layer, std::uint64_t, std::uint64_t n, const Elements& q, const Elements& k,
                  const Elements&) override {
    const std::size_t dim = model_.head_dim, group = model_.group();
    std::vector<float> queries(std::size_t{model_.n_q_heads} * n * dim);
    std::vector<float> keys(std::size_t{model_.n_kv_heads} * n * dim);
    q.store(Elem::f32, queries.data());
    k.store(Elem::f32, keys.data());
    for (std::size_t head = 0; head < model_.n_kv_heads; ++head) {
      std::vector<float>& rows = seen_[layer * model_.n_kv_heads + head].rows;
      rows.insert(rows.end(), keys.begin() + static_cast<std::ptrdiff_t>(head * n * dim),
                  keys.begin() + static_cast<std::ptrdiff_t>((head + 1) * n * dim));
    }
    // One task per query head, so that each writes its own row of the results.
    workers_.run(model_.n_q_heads, [&](std::size_t head) {
      attend(layer, head, head / group, n, queries.data() + head * n * dim);
      keep(layer, head, n, queries.data() + head * n * dim);
    });
  }
  bool wants_layer_output() const override { return true; }
  void on_layer_output(std::uint32_t layer, std::span<const float> hidden) override {
    if (layer + 1 < config_.n_layers) measure(layer + 1, {hidden.begin(), hidden.end()});
  }

 private:
  /// The lengths of what enters a layer's attention.
  void measure(std::uint32_t layer, const std::vector<float>& hidden) {
    const std::size_t width = config_.hidden_size, n = hidden.size() / width;
    std::vector<float> entering;
    model::cpu::enter_half(workers_, config_, weights_.layers[layer].attention_norm, hidden, n, entering);
    lengths_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float* row = entering.data() + i * width;
      lengths_[i] = std::sqrt(static_cast<double>(dot(row, row, width)));
    }
  }

  void attend(std::uint32_t layer, std::size_t head, std::size_t kv_head, std::size_t n,
              const float* queries) {
    const SeenKeys& seen = seen_[layer * model_.n_kv_heads + kv_head];
    const std::size_t dim = model_.head_dim, total = seen.rows.size() / dim, first = total - n;
    const std::size_t at = (std::size_t{layer} * model_.n_q_heads + head) * out_.prompt + chunk_->begin;
    const DotRows products(seen.rows.data(), dim, total, dim);
    std::vector<float> product(total);
    std::vector<double> weights(total + 1);  // and what the head's sink takes
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t count = first + i + 1;
      products.products(queries + i * dim, count, product.data());
      for (std::size_t j = 0; j < count; ++j)
        weights[j] = capped(model_.attn_scale * static_cast<double>(product[j]), model_.logit_softcap);
      weights[count] = static_cast<double>(model_.sink(layer, head));
      const double sum = exponentials(std::span(weights).first(count + 1));
      for (std::size_t j = 0; j < seen.chunk; ++j) {
        const double paid = weights[seen.before + j] / sum;
        float &attention = out_.attention[at + j], &scaled = out_.scaled[at + j];
        attention = std::max(attention, static_cast<float>(paid));
        scaled = std::max(scaled, static_cast<float>(paid / lengths_[i]));
      }
    }
  }

  /// Keeps the queries of rows that read the text.
  void keep(std::uint32_t layer, std::size_t head, std::size_t n, const float* queries) {
    const std::size_t dim = model_.head_dim,
                      rows = out_.queries.size() / (std::size_t{model_.n_layers} * model_.n_q_heads * dim);
    for (std::size_t i = 0; i < n && rows > 0; ++i)
      if (first_ + i >= asking_)
        std::copy_n(queries + i * dim, dim,
                    out_.queries.data() + ((std::size_t{layer} * model_.n_q_heads + head) * rows +
                                           chunk_->begin - template_end_ + first_ + i - asking_) *
                                              dim);
  }

  const trace::Sequence& run_;
  const trace::Model& model_;
  const model::ModelConfig& config_;
  const model::Weights& weights_;
  Workers workers_;
  std::uint64_t template_end_;
  SecondPass& out_;
  const Repeated* chunk_ = nullptr;
  std::uint64_t asking_ = 0, first_ = 0;  ///< tokens of the chunk before its text; before this pass
  std::vector<SeenKeys> seen_;            ///< per lane, layer-major
  std::vector<double> lengths_;           ///< per row of the pass
};

/// The cache begins with what the prompt has left.
void resume_prompt(const trace::Sequence& run, model::cpu::CpuRun& again) {
  const trace::Model& model = run.model();
  const std::uint64_t prompt = run.prompt_length();
  std::vector<float> keys(prompt * model.head_dim), values(prompt * model.v_head_dim);
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      run.read(trace::Tensor::key, layer, head, 0, prompt, keys);
      if (!model.values_in_keys) run.read(trace::Tensor::value, layer, head, 0, prompt, values);
      again.resume(layer, head, keys, model.values_in_keys ? keys : values);
    }
}

}  // namespace

SecondPass second_pass(const trace::Sequence& run, const model::Tokenizer& tokenizer,
                       const model::ModelConfig& config, const model::Weights& weights,
                       const SecondPassOptions& options, Progress& progress) {
  const trace::Model& model = run.model();
  if (model.has_windows())
    usage_error("has layers with a sliding window, from which tokens that are repeated have left", model.name,
                "The second pass is for models whose layers see everything.");
  const std::vector<Repeated> chunks = repeated_chunks(run, tokenizer, options.repeat_chunk);
  std::uint64_t longest = 0;
  for (const Repeated& chunk : chunks) longest = std::max<std::uint64_t>(longest, chunk.fed.size());
  const std::uint64_t prompt = run.prompt_length(), capacity = std::max(options.positions, prompt + longest);
  check_context(prompt, longest, config.max_positions);
  model::check_rope_regime(config.rope, prompt, capacity);

  SecondPass out{prompt, model.group(), {}, {}};
  if (options.queries)
    out.queries.resize(std::size_t{model.n_layers} * model.n_q_heads *
                       (chunks.back().end - chunks.front().begin) * model.head_dim);
  out.attention.assign(std::size_t{model.n_layers} * model.n_q_heads * prompt, kAlwaysKept);
  for (std::size_t row = 0; row < out.attention.size(); row += prompt)
    std::fill(out.attention.begin() + static_cast<std::ptrdiff_t>(row + chunks.front().begin),
              out.attention.begin() + static_cast<std::ptrdiff_t>(row + chunks.back().end), 0.0F);
  out.scaled = out.attention;
  ChunkObserver observer(run, config, weights, options.threads, chunks.front().begin, out);
  for (const Repeated& chunk : chunks) {
    model::cpu::CpuRun again(config, weights,
                             {.capacity = capacity,
                              .elem = options.elem,
                              .threads = options.threads,
                              .pass_tokens = std::min(options.prefill_chunk, longest)});
    resume_prompt(run, again);
    observer.begin(chunk);
    for (std::uint64_t first = 0, n; first < chunk.fed.size(); first += n) {
      progress.check();
      n = std::min<std::uint64_t>(options.prefill_chunk, chunk.fed.size() - first);
      const std::span<const std::int32_t> tokens = std::span(chunk.fed).subspan(first, n);
      observer.enter(tokens, prompt + first);
      again.forward(tokens, observer);
    }
  }
  return out;
}

void write_second_passes(const std::string& path, bool overwrite, const trace::Model& model,
                         const std::vector<SecondPass>& passes) {
  hdf5::OutputFile file(path, overwrite);
  for (const SecondPass& pass : passes) {
    const std::string name = std::to_string(pass.prompt);
    const hdf5::Object group = hdf5::create_group(file.id(), name, path);
    const std::vector<std::uint64_t> dims{model.n_layers, model.n_kv_heads, pass.group, pass.prompt};
    hdf5::put_array(group.id(), "attention", hdf5::Type::f32, pass.attention.data(), dims, path);
    hdf5::put_array(group.id(), "scaled", hdf5::Type::f32, pass.scaled.data(), dims, path);
    if (pass.queries.empty()) continue;
    const std::uint64_t heads = std::uint64_t{model.n_layers} * model.n_kv_heads * pass.group;
    hdf5::put_array(group.id(), "queries", hdf5::Type::f32, pass.queries.data(),
                    {model.n_layers, model.n_kv_heads, pass.group,
                     pass.queries.size() / heads / model.head_dim, model.head_dim},
                    path);
  }
  file.commit();
}

}  // namespace kvsim::capture
