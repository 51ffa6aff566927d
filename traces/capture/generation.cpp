#include "traces/capture/generation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>

#include "sim/base/error.hpp"

namespace kvsim::capture {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

struct Choice {
  std::int32_t id = 0;
  float logprob = 0;
};

Choice greedy(const std::vector<float>& logits, std::uint64_t position) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{*best});
  if (!std::isfinite(sum)) {
    input_error("the logits after token " + std::to_string(position) + " are not finite", "model",
                "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
  }
  return {static_cast<std::int32_t>(best - logits.begin()), static_cast<float>(-std::log(sum))};
}

/// One forward call after the other, written down.
class Passes {
 public:
  Passes(ModelRun& run, RunObserver& observer, Progress& progress, Generation& record)
      : run_(run), observer_(observer), progress_(progress), record_(record) {}

  /// Processes tokens [first, first + n); logits of the last one if they are wanted.
  std::vector<float> forward(std::uint64_t first, std::uint64_t n, trace::Phase phase, bool want_logits) {
    progress_.check();
    const auto begin = Clock::now();
    const PassTiming timing = run_.forward(std::span(record_.tokens).subspan(first, n), observer_);
    const auto head_begin = Clock::now();
    std::vector<float> logits = want_logits ? run_.logits() : std::vector<float>{};
    const std::int64_t duration = timing.total + nanoseconds(Clock::now() - head_begin);
    record_.passes.push_back({.segment = phase == trace::Phase::decode ? 1U : 0U,
                              .begin = first,
                              .q_len = static_cast<std::uint32_t>(n),
                              .past_len = static_cast<std::uint32_t>(first),
                              .phase = phase,
                              .start_ns = nanoseconds(begin - start_),
                              .dur_ns = duration});
    record_.layer_ns.insert(record_.layer_ns.end(), timing.layer.begin(), timing.layer.end());
    record_.attn_ns.insert(record_.attn_ns.end(), timing.attention.begin(), timing.attention.end());
    progress_.advance(n);
    return logits;
  }

 private:
  ModelRun& run_;
  RunObserver& observer_;
  Progress& progress_;
  Generation& record_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Generation generate(ModelRun& run, const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                    RunObserver& observer, Progress& progress) {
  Generation record;
  record.tokens = prompt;
  record.logprob.assign(prompt.size(), std::numeric_limits<float>::quiet_NaN());
  Passes passes(run, observer, progress, record);
  std::vector<float> logits;
  for (std::uint64_t first = 0; first < prompt.size(); first += options.prefill_chunk) {
    const std::uint64_t n = std::min(options.prefill_chunk, prompt.size() - first);
    const bool last = first + n == prompt.size();
    logits = passes.forward(first, n, trace::Phase::prompt, last && options.max_new_tokens > 0);
  }
  for (std::uint64_t i = 0; i < options.max_new_tokens; ++i) {
    const Choice choice = greedy(logits, record.tokens.size() - 1);
    record.tokens.push_back(choice.id);
    record.logprob.push_back(choice.logprob);
    const bool end = std::find(options.eos.begin(), options.eos.end(), choice.id) != options.eos.end();
    const bool more = !end && i + 1 < options.max_new_tokens;
    // The last token runs too: every token of a trace has its key, value and query.
    logits = passes.forward(record.tokens.size() - 1, 1, trace::Phase::decode, more);
    if (!more) break;
  }
  return record;
}

}  // namespace kvsim::capture
