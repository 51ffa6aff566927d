#include "sim/requests/serving/batching/batch_run.hpp"

#include <algorithm>

namespace kvsim::serving {
namespace {

class BatchRun {
 public:
  BatchRun(const requests::RequestTrace& trace, const prefix::PrefixTree* tree, std::uint64_t window,
           const StepPrice& price)
      : trace_(trace), window_(window), price_(price) {
    if (tree == nullptr || window > 0) return;
    reader_.emplace(trace, *tree);
    out_.shared.emplace();
  }

  void add(const PromptBatch& batch) {
    ++out_.batches;
    out_.requests += batch.requests.size();
    out_.rows += batch.chunks.size();
    out_.padding_tokens += batch.padding_tokens;
    out_.found_tokens += batch.found_tokens;
    for (const cost::Chunk& chunk : batch.chunks) out_.computed_tokens += chunk.tokens;
    for (const std::uint32_t request : batch.requests) {
      out_.prompt_tokens += trace_.requests[request].prompt_tokens;
      out_.generated_tokens += trace_.requests[request].generated_tokens;
    }
    out_.prompt_seconds += price_({.chunks = batch.chunks, .sampled = batch.requests.size()});
    decode(batch.requests);
  }
  const BatchSummary& summary() const { return out_; }

 private:
  void decode(std::vector<std::uint32_t> running) {
    // Those with the longest answers stand first, so that what still runs is the beginning.
    std::stable_sort(running.begin(), running.end(), [&](std::uint32_t a, std::uint32_t b) {
      return trace_.requests[a].generated_tokens > trace_.requests[b].generated_tokens;
    });
    std::size_t size = running.size();
    std::optional<SharedReads> shared;
    for (std::uint64_t step = 1; size > 0; ++step) {
      const std::size_t before = size;
      while (size > 0 && trace_.requests[running[size - 1]].generated_tokens <= step) --size;
      if (size == 0) break;
      const std::span<const std::uint32_t> now = std::span(running).first(size);
      if (reader_ && (size < before || !shared)) shared = reader_->count(now, step);
      one_step(now, step, shared);
      // Each reads one token more in the next step, which nobody shares.
      if (shared) shared->shared_tokens += size;
    }
  }

  void one_step(std::span<const std::uint32_t> running, std::uint64_t step,
                const std::optional<SharedReads>& shared) {
    cost::StepWork work{.decoding = running.size(), .sampled = running.size()};
    for (const std::uint32_t request : running) {
      const std::uint64_t tokens = trace_.requests[request].prompt_tokens + step;
      work.attended += tokens;
      work.within_window += std::min(tokens, window_);
    }
    ++out_.steps;
    out_.separate.tokens += work.attended;
    out_.separate.within_window += work.within_window;
    out_.separate.seconds += price_(work);
    if (!shared) return;
    work.shared = {.tokens = shared->shared_tokens, .partials = shared->partials, .levels = shared->levels};
    out_.shared->tokens += shared->shared_tokens;
    out_.shared->partials += shared->partials;
    out_.shared->seconds += price_(work);
  }

  const requests::RequestTrace& trace_;
  const std::uint64_t window_;
  const StepPrice& price_;
  std::optional<SharedReader> reader_{};
  BatchSummary out_{};
};

}  // namespace

BatchSummary run_batches(const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
                         std::span<const PromptBatch> batches, std::uint64_t window, const StepPrice& price) {
  BatchRun run(trace, tree, window, price);
  for (const PromptBatch& batch : batches) run.add(batch);
  return run.summary();
}

SharedReads SharedReader::count(std::span<const std::uint32_t> running, std::uint64_t private_tokens) {
  for (const std::uint32_t request : running)
    for (const prefix::Node node : tree_.prompt(request)) ++readers_[node];
  SharedReads out;
  for (const std::uint32_t request : running) {
    std::uint64_t left = trace_.requests[request].prompt_tokens;
    out.separate_tokens += left + private_tokens;
    std::uint32_t before = 0;
    bool alone = private_tokens > 0;
    std::uint64_t levels = 0;
    for (const prefix::Node node : tree_.prompt(request)) {
      left -= std::min<std::uint64_t>(left, trace_.block_tokens);
      const std::uint32_t readers = readers_[node];
      // What it reads alone is one kernel, with the tokens behind the prompt.
      if (readers == 1)
        alone = true;
      else if (readers != before)
        ++levels;
      before = readers;
    }
    if (alone || left > 0) ++levels;
    out.shared_tokens += left + private_tokens;  // left: a tail without an id
    out.partials += levels > 1 ? levels : 0;
    out.levels = std::max(out.levels, levels);
  }
  // Every block counts once, and its readers are forgotten.
  for (const std::uint32_t request : running) {
    std::uint64_t left = trace_.requests[request].prompt_tokens;
    for (const prefix::Node node : tree_.prompt(request)) {
      const std::uint64_t here = std::min<std::uint64_t>(left, trace_.block_tokens);
      left -= here;
      if (readers_[node] > 0) out.shared_tokens += here;
      readers_[node] = 0;
    }
  }
  return out;
}

}  // namespace kvsim::serving
