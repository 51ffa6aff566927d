#include "traces/model/generation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>

#include "sim/base/error.hpp"

namespace kvsim::model {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// The token of a step, given or chosen.
TokenChoice next_token(ModelRun& run, const GenerationOptions& options, std::uint64_t step) {
  const bool chosen = options.given.empty();
  if (chosen && options.sampling.temperature == 0) return run.most_probable();
  const std::vector<float> logits = run.logits();
  const LogProbabilities distribution(logits);
  if (!distribution.finite()) return {-1, std::numeric_limits<float>::quiet_NaN()};
  const std::int32_t id = chosen ? choose_token(logits, options.sampling, step) : options.given[step];
  return {id, distribution.of(id)};
}

bool ends(const GenerationOptions& options, std::int32_t id) {
  return options.given.empty() && std::find(options.eos.begin(), options.eos.end(), id) != options.eos.end();
}

/// Runs forward calls and records each as a trace::Pass.
class Passes {
 public:
  Passes(ModelRun& run, RunObserver& observer, Progress& progress, Generation& record)
      : run_(run), observer_(observer), progress_(progress), record_(record) {}
  /// Whatever ends the generation, the observer receives nothing afterwards.
  ~Passes() { run_.abandon(); }
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;

  /// Processes tokens [first, first + n).
  void forward(std::uint64_t first, std::uint64_t n, trace::Phase phase) {
    progress_.check();
    const auto begin = Clock::now();
    const PassTiming timing = run_.forward_ahead(std::span(record_.tokens).subspan(first, n), observer_);
    record_.passes.push_back({.segment = phase == trace::Phase::prompt ? 0U : 1U,
                              .begin = first,
                              .q_len = static_cast<std::uint32_t>(n),
                              .past_len = static_cast<std::uint32_t>(first),
                              .phase = phase,
                              .start_ns = nanoseconds(begin - start_),
                              .dur_ns = timing.total});
    record_.layer_ns.insert(record_.layer_ns.end(), timing.layer.begin(), timing.layer.end());
    record_.attn_ns.insert(record_.attn_ns.end(), timing.attention.begin(), timing.attention.end());
    progress_.advance(n);
  }

  /// The token after the latest pass; adds the time of choosing it to that pass.
  TokenChoice next(const GenerationOptions& options, std::uint64_t step) {
    const auto begin = Clock::now();
    const TokenChoice choice = next_token(run_, options, step);
    record_.passes.back().dur_ns += nanoseconds(Clock::now() - begin);
    return choice;
  }

 private:
  ModelRun& run_;
  RunObserver& observer_;
  Progress& progress_;
  Generation& record_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

void note_logprobs(ModelRun& run, std::span<const std::int32_t> text, std::uint64_t first, std::uint64_t n,
                   std::span<float> logprob) {
  if (first + 1 >= logprob.size()) return;
  const std::vector<float> logits = run.logits(n);
  const std::size_t vocabulary = logits.size() / n;
  for (std::uint64_t i = 0; i < n && first + i + 1 < logprob.size(); ++i)
    logprob[first + i + 1] =
        LogProbabilities(std::span(logits).subspan(i * vocabulary, vocabulary)).of(text[first + i + 1]);
}

Generation generate(ModelRun& run, const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                    RunObserver& observer, Progress& progress) {
  Generation record;
  record.tokens = prompt;
  record.logprob.assign(prompt.size(), std::numeric_limits<float>::quiet_NaN());
  Passes passes(run, observer, progress, record);
  const std::uint64_t new_tokens = options.given.empty() ? options.max_new_tokens : options.given.size();
  const trace::Phase phase = options.given.empty() ? trace::Phase::decode : trace::Phase::teacher_forced;
  for (std::uint64_t first = 0; first < prompt.size(); first += options.prefill_chunk) {
    const std::uint64_t n = std::min(options.prefill_chunk, prompt.size() - first);
    passes.forward(first, n, trace::Phase::prompt);
    if (options.prompt_logprobs) note_logprobs(run, prompt, first, n, record.logprob);
  }
  run.settle();
  for (std::uint64_t step = 0; step < new_tokens; ++step) {
    const TokenChoice choice = passes.next(options, step);
    if (!std::isfinite(choice.logprob)) {
      input_error("the logits after token " + std::to_string(record.tokens.size() - 1) + " are not finite",
                  "model",
                  "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
    }
    record.tokens.push_back(choice.id);
    record.logprob.push_back(choice.logprob);
    // The last token is processed too, because every token of a trace has its key, value and query.
    passes.forward(record.tokens.size() - 1, 1, phase);
    if (ends(options, choice.id)) break;
  }
  run.settle();
  return record;
}

}  // namespace kvsim::model
