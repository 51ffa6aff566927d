#include "traces/capture/prompt_run.hpp"

#include <algorithm>
#include <limits>

#include "traces/capture/token_header.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/generation.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::capture {
namespace {

/// Copies what a run shows into a trace in memory.
class MemoryRecorder final : public model::RunObserver {
 public:
  explicit MemoryRecorder(trace::MemoryTrace& trace) : trace_(trace) {}

  void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                  const Elements& k, const Elements& v) override {
    const trace::Model& model = trace_.header().model;
    copy(trace::Tensor::query, layer, model.n_q_heads, model.head_dim, first, n, q);
    copy(trace::Tensor::key, layer, model.n_kv_heads, model.head_dim, first, n, k);
    if (!model.values_in_keys)
      copy(trace::Tensor::value, layer, model.n_kv_heads, model.v_head_dim, first, n, v);
  }

 private:
  void copy(trace::Tensor tensor, std::uint32_t layer, std::uint32_t heads, std::size_t dim,
            std::uint64_t first, std::uint64_t n, const Elements& from) {
    for (std::uint32_t head = 0; head < heads; ++head)
      from.subspan(head * n * dim, n * dim)
          .store(Elem::f32, trace_.rows(tensor, layer, head).data() + first * dim);
  }

  trace::MemoryTrace& trace_;
};

void copy_output_weights(const model::Weights& weights, trace::MemoryTrace& trace) {
  const std::uint32_t heads = trace.header().model.n_q_heads;
  for (std::uint32_t layer = 0; layer < weights.layers.size(); ++layer) {
    const std::vector<float> all = weights.layers[layer].output_projection();
    const std::size_t part = all.size() / heads;
    for (std::uint32_t head = 0; head < heads; ++head)
      std::copy_n(all.data() + head * part, part, trace.output_weights(layer, head).data());
  }
}

/// Takes over the first `tokens` tokens of another run.
void take_over(const trace::MemoryTrace& known, std::uint64_t tokens, trace::MemoryTrace& trace,
               model::cpu::CpuRun& run) {
  const trace::Model& model = trace.header().model;
  const auto copied = [&](trace::Tensor tensor, std::uint32_t layer, std::uint32_t head, std::size_t dim) {
    const std::span<float> rows = trace.rows(tensor, layer, head).first(tokens * dim);
    known.read(tensor, layer, head, 0, tokens, rows);
    return rows;
  };
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head)
      copied(trace::Tensor::query, layer, head, model.head_dim);
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      const std::span<float> keys = copied(trace::Tensor::key, layer, head, model.head_dim);
      run.resume(layer, head, keys,
                 model.values_in_keys ? keys : copied(trace::Tensor::value, layer, head, model.v_head_dim));
    }
  }
}

}  // namespace

trace::MemoryTrace run_prompt(const Prompt& prompt, const model::ModelConfig& config,
                              const model::Weights& weights, const PromptRunOptions& options,
                              Progress& progress) {
  std::vector<std::int32_t> text = prompt.ids;
  text.insert(text.end(), options.answer.begin(), options.answer.end());
  const std::uint64_t tokens = prompt.ids.size();
  model::cpu::CpuRun run(config, weights,
                         {.capacity = options.positions,
                          .elem = options.elem,
                          .threads = options.threads,
                          .pass_tokens = std::min(options.prefill_chunk, tokens)});
  trace::Header header;
  header.model = model::describe_model(config, weights, options.model_dir, options.positions);
  header.capture = run.describe();
  header.capture.workload = prompt.workload;
  header.capture.workload_item = prompt.workload_item;
  header.elem = options.elem;
  if (options.output_weights) header.output_elem = Elem::f32;
  describe_tokens(header, text, prompt, config);
  describe_segments(header, tokens, text.size(), true);
  if (options.logprobs) header.token_logprob.assign(text.size(), std::numeric_limits<float>::quiet_NaN());
  trace::MemoryTrace trace(std::move(header));
  if (options.output_weights) copy_output_weights(weights, trace);
  MemoryRecorder recorder(trace);
  std::uint64_t first = 0;
  if (options.known != nullptr) {
    take_over(*options.known, tokens, trace, run);
    if (options.logprobs)
      std::copy_n(options.known->header().token_logprob.begin(), tokens, trace.logprobs().begin());
    progress.advance(first = tokens);
  }
  for (std::uint64_t n; first < text.size(); first += n) {
    progress.check();
    n = first < tokens ? std::min(options.prefill_chunk, tokens - first) : 1;
    run.forward(std::span(text).subspan(first, n), recorder);
    model::note_logprobs(run, text, first, n, trace.logprobs());
    progress.advance(n);
  }
  return trace;
}

}  // namespace kvsim::capture
