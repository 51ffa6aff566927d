#include "sim/requests/serving/engine.hpp"

#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::serving {
namespace {

/// The settings own what this points to.
std::span<const double> seconds_of(const EngineSettings& settings) {
  if (settings.block_seconds == nullptr) return {};
  return *settings.block_seconds;
}

}  // namespace

std::unique_ptr<Allocator> engine_memory(const EngineSettings& settings, const requests::RequestTrace& trace,
                                         const prefix::PrefixTree* tree) {
  AllocatorSettings memory = settings.memory;
  memory.places = settings.max_sequences;
  if (!settings.prefix_cache) return make_allocator(settings.allocator, memory);
  if (tree == nullptr || !trace.has_blocks())
    usage_error("a prefix cache needs to know which prompts share tokens, and a trace of format " +
                    trace.format + " does not say it",
                {}, "serve it without a prefix cache");
  if (settings.allocator != AllocatorKind::paged)
    usage_error("a prefix cache shares blocks",
                std::string("allocator ") + allocator_name(settings.allocator),
                "use paged, or no prefix cache");
  return std::make_unique<PrefixMemory>(*settings.prefix_cache, trace, *tree, seconds_of(settings),
                                        memory.capacity, memory.places);
}

double copy_seconds(const SwapSettings& swap, const std::vector<Run>& runs) {
  double seconds = 0;
  for (const Run& run : runs)
    seconds +=
        real(swap.run_copies) * swap.link.latency + real(run.length) * swap.token_bytes / swap.link.bandwidth;
  return seconds;
}

Engine::Engine(const EngineSettings& settings, const requests::RequestTrace& trace,
               const prefix::PrefixTree* tree, StepPrice price, std::vector<RequestOutcome>& outcomes)
    : settings_(settings),
      trace_(trace),
      tree_(tree),
      price_(std::move(price)),
      outcomes_(outcomes),
      memory_(engine_memory(settings, trace, tree)) {
  if (settings.step_tokens == 0) usage_error("a step that computes no tokens", "tokens of a step");
  if (settings.preemption == Preemption::swap && !(settings.swap.link.bandwidth > 0))
    usage_error("the machine has no link to host memory", "preemption by swap",
                "preempt by recompute, or give the machine file a \"host_link\"");
  if (settings.prefix_cache) prefixes_ = static_cast<PrefixMemory*>(memory_.get());
  if (settings.host_cache.policy) {
    if (prefixes_ == nullptr)
      usage_error("stands behind the prefix cache of the device, and there is none", "cache on the host");
    if (!(settings.swap.link.bandwidth > 0))
      usage_error("the machine has no link to host memory", "cache on the host");
    host_.emplace(settings.host_cache, trace, *tree, seconds_of(settings));
  }
  for (Place place = settings.max_sequences; place-- > 0;) free_places_.push_back(place);
}

std::uint64_t Engine::found(std::uint32_t request) const {
  return prefixes_ == nullptr ? 0 : prefixes_->found(request, shareable({.request = request}));
}

void Engine::take_part(Sequence& sequence, std::uint64_t tokens) {
  sequence.in_this_step = tokens;
  left_ -= tokens;
  const std::uint64_t after = sequence.computed + tokens;
  if (after == known(sequence)) ++work_.sampled;
  outcomes_[sequence.request].computed_tokens += tokens;
  if (sequence.generated > 0 && tokens == 1 && after == known(sequence)) {
    ++work_.decoding;
    work_.attended += after;
    work_.within_window += std::min(after, settings_.window);
    ++use_.decoded_tokens;
  } else {
    chunks_.push_back({tokens, sequence.computed});
    use_.prompt_tokens += tokens;
  }
}

void Engine::wait_for_copy(std::uint32_t request, const std::vector<Run>& runs) {
  const double seconds = copy_seconds(settings_.swap, runs);
  use_.swap_copies += runs.size() * settings_.swap.run_copies;
  outcomes_[request].swap_seconds += seconds;
  swap_seconds_ += seconds;
}

void Engine::swap(const Sequence& sequence) {
  wait_for_copy(sequence.request, memory_->runs(sequence.place, sequence.computed));
}

std::uint64_t Engine::load(const Sequence& sequence, std::uint64_t found) {
  const std::uint64_t there = host_->found(sequence.request, shareable(sequence));
  if (there <= found) return found;
  std::vector<Run> blocks;
  for (std::uint64_t at = found; at < there; at += trace_.block_tokens)
    blocks.push_back({at, trace_.block_tokens});
  wait_for_copy(sequence.request, blocks);
  prefixes_->computed(sequence.place, sequence.request, there);
  return there;
}

void Engine::leave(Sequence& sequence, double now) {
  if (prefixes_ != nullptr) {
    std::vector<std::span<const prefix::Node>> prompts;
    const std::size_t seen = std::min(prefixes_->lookahead(), waiting_.size());
    for (std::size_t i = 0; i < seen; ++i) prompts.push_back(tree_->prompt(waiting_[i].request));
    prefixes_->set_now(now, std::move(prompts));
  }
  memory_->leave(sequence.place);
  free_places_.push_back(sequence.place);
}

void Engine::preempt_last(double now) {
  Sequence victim = running_.back();
  running_.pop_back();
  ++use_.preemptions;
  ++outcomes_[victim.request].preemptions;
  const bool swaps = settings_.preemption == Preemption::swap &&
                     victim.computed <= settings_.swap.host_tokens - host_tokens_ && victim.computed > 0;
  if (swaps) {
    swap(victim);
    host_tokens_ += victim.computed;
    victim.swapped = true;
  } else {
    victim.computed = 0;
  }
  leave(victim, now);
  waiting_.push_front(victim);
}

bool Engine::admit(Sequence& sequence, double now) {
  sequence.place = free_places_.back();
  std::uint64_t hits = 0;
  if (prefixes_ != nullptr && !sequence.swapped) {
    const auto behind =
        prefixes_->enter_behind(sequence.place, sequence.request, shareable(sequence), known(sequence));
    if (!behind) return false;
    hits = *behind;
  } else if (!memory_->enter(sequence.place, known(sequence))) {
    return false;
  }
  free_places_.pop_back();
  if (sequence.swapped) {
    swap(sequence);
    host_tokens_ -= sequence.computed;
    sequence.swapped = false;
  } else {
    sequence.computed = host_ ? load(sequence, hits) : hits;
  }
  if (!sequence.started) {
    sequence.started = true;
    outcomes_[sequence.request].started = now;
    outcomes_[sequence.request].hit_tokens = sequence.computed;
    outcomes_[sequence.request].host_tokens = sequence.computed - hits;
  }
  return true;
}

void Engine::schedule(double now) {
  const std::uint64_t preempted = use_.preemptions;
  for (std::size_t i = 0; i < running_.size() && left_ > 0; ++i) {
    // A prompt has its room from the start, so only a token that was generated may find none.
    while (i < running_.size() && !memory_->grow(running_[i].place, known(running_[i]))) preempt_last(now);
    if (i < running_.size())
      take_part(running_[i], std::min(left_, known(running_[i]) - running_[i].computed));
  }
  waits_for_memory_ = use_.preemptions > preempted;
  if (waits_for_memory_) return;
  while (left_ > 0 && !waiting_.empty() && !free_places_.empty()) {
    if (!admit(waiting_.front(), now)) {
      waits_for_memory_ = true;
      return;
    }
    running_.push_back(waiting_.front());
    waiting_.pop_front();
    Sequence& sequence = running_.back();
    take_part(sequence, std::min(left_, known(sequence) - sequence.computed));
  }
}

void Engine::start_step(double now) {
  left_ = settings_.step_tokens;
  swap_seconds_ = 0;
  chunks_.clear();
  work_ = {};
  for (Sequence& sequence : running_) sequence.in_this_step = 0;
  if (prefixes_ != nullptr) prefixes_->advance(now);
  if (host_) host_->advance(now);
  schedule(now);
  if (left_ == settings_.step_tokens) bug("a step without work");
  work_.chunks = chunks_;
  const double seconds = price_(work_) + swap_seconds_;
  count(seconds);
  step_end_ = now + seconds;
  in_step_ = true;
}

void Engine::count(double seconds) {
  ++use_.steps;
  use_.busy += seconds;
  use_.swap_seconds += swap_seconds_;
  use_.running += seconds * real(running_.size());
  const MemoryUse memory = memory_->use();
  use_.used += seconds * real(memory.used);
  use_.reserved += seconds * real(memory.reserved);
  use_.kept += seconds * real(memory.kept);
  use_.peak = std::max(use_.peak, memory.reserved);
  if (waits_for_memory_) {
    use_.short_seconds += seconds;
    use_.external += seconds * real(memory_->capacity() - memory.reserved - memory.kept);
  }
  use_.maps = memory_->operations().maps;
  use_.unmaps = memory_->operations().unmaps;
}

void Engine::token(Sequence& sequence) {
  RequestOutcome& outcome = outcomes_[sequence.request];
  if (sequence.generated == 0)
    outcome.first_token = step_end_;
  else
    outcome.longest_gap = std::max(outcome.longest_gap, step_end_ - outcome.end);
  outcome.end = step_end_;
  ++sequence.generated;
}

void Engine::end_step(std::vector<std::uint32_t>& ended) {
  in_step_ = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = running_[i];
    const std::uint64_t before = sequence.computed;
    sequence.computed += sequence.in_this_step;
    const bool sampled = sequence.in_this_step > 0 && sequence.computed == known(sequence);
    const requests::Request& request = trace_.requests[sequence.request];
    if (prefixes_ != nullptr && before < request.prompt_tokens)
      prefixes_->computed(sequence.place, sequence.request,
                          std::min<std::uint64_t>(sequence.computed, request.prompt_tokens));
    if (sampled) token(sequence);
    if (sampled && sequence.generated >= request.generated_tokens) {
      outcomes_[sequence.request].runs =
          static_cast<std::uint32_t>(memory_->runs(sequence.place, sequence.computed).size());
      if (prefixes_ != nullptr && request.n_final_blocks > 0)
        prefixes_->ended(sequence.place, sequence.request, sequence.computed);
      if (host_) host_->store(sequence.request, sequence.computed, step_end_);
      leave(sequence, step_end_);
      ended.push_back(sequence.request);
      continue;
    }
    if (kept != i) running_[kept] = sequence;
    ++kept;
  }
  running_.resize(kept);
}

}  // namespace kvsim::serving
