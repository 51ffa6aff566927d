#pragma once
/// One engine that serves requests: continuous batching, first come, first served, with prompts in chunks
/// (the scheduler of vLLM's V1 engine; traces/requests/README.md says what is left out).
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sim/cost/engine_step.hpp"
#include "sim/cost/machine.hpp"
#include "sim/requests/serving/allocators/allocator.hpp"
#include "sim/requests/serving/prefix_memory.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// What becomes of a sequence that must make room.
enum class Preemption {
  recompute,  ///< its memory is free, and later its prompt and what it has generated are computed once more
  swap,       ///< its keys and values go to the host's memory and come back; the engine waits for the copies
};

/// What a copy over the link to the host costs.
struct SwapSettings {
  cost::Link link{};
  double token_bytes = 0;        ///< keys and values of a token in all layers, on one device
  std::uint64_t run_copies = 1;  ///< copies that a run of neighbouring tokens needs: keys and values of
                                 ///< each layer
  std::uint64_t host_tokens = ~std::uint64_t{0};  ///< that the host has room for; above, it is recomputed
};
/// Σ over runs of run_copies * latency + bytes / bandwidth: one way.
double copy_seconds(const SwapSettings& swap, const std::vector<Run>& runs);

struct EngineSettings {
  std::uint32_t max_sequences = 256;  ///< that run at a time
  std::uint64_t step_tokens = 2048;   ///< that a step computes, at most
  AllocatorKind allocator = AllocatorKind::paged;
  AllocatorSettings memory{};  ///< places are max_sequences
  /// Which blocks of prompts stay for others, where memory is paged, in the trace's blocks; nothing: none do.
  std::optional<policy::Part> prefix_cache{};
  /// Of computing a block of a prompt, by its depth, for policies of cost; nothing: 1 at every depth.
  std::shared_ptr<const std::vector<double>> block_seconds{};
  HostCacheSettings host_cache{};  ///< behind the prefix cache on the device
  Preemption preemption = Preemption::recompute;
  SwapSettings swap{};
  /// Tokens that a decoded token attends to in layers that have a window, at most; 0: none has.
  std::uint64_t window = 0;
};

/// What happened to a request. Seconds are since the beginning of the trace.
struct RequestOutcome {
  double arrival = 0;
  double started = 0;      ///< when the first step with it began
  double first_token = 0;  ///< when it was there
  double end = 0;          ///< when the last token was there
  double longest_gap = 0;  ///< s between two tokens that follow each other
  std::uint64_t prompt_tokens = 0, generated_tokens = 0;
  std::uint64_t hit_tokens = 0;       ///< of the prompt, found when it first started
  std::uint64_t host_tokens = 0;      ///< of these, copied from the host
  std::uint64_t computed_tokens = 0;  ///< in all its steps, of the prompt and of generated ones
  /// Of those not found, tokens that another replica had.
  std::uint64_t elsewhere_tokens = 0;
  std::uint32_t preemptions = 0, replica = 0;
  std::uint32_t runs = 0;   ///< pieces of memory in which it lay at its end
  double swap_seconds = 0;  ///< that the engine waited for its copies, from the host's cache too
  bool skipped = false;     ///< on arrival, as no memory holds it: nothing else is said of it
  /// Of the request, left away as no memory holds them: not in the numbers above.
  std::uint64_t cut_tokens = 0;

  double queueing() const { return started - arrival; }
  double ttft() const { return first_token - arrival; }
  /// Nothing for requests of less than two tokens.
  std::optional<double> tpot() const {
    if (generated_tokens < 2) return std::nullopt;
    return (end - first_token) / static_cast<double>(generated_tokens - 1);
  }
};

/// Sums over the steps of an engine; the integrals are over its busy seconds.
struct EngineUse {
  std::uint64_t steps = 0, prompt_tokens = 0, decoded_tokens = 0;  ///< computed, again if need be
  std::uint64_t preemptions = 0, swap_copies = 0;
  double busy = 0;          ///< s in steps, copies included
  double swap_seconds = 0;  ///< of these, waiting for copies
  double running = 0;       ///< ∫ sequences dt
  // Of memory, in its unit.
  double used = 0;           ///< ∫ what tokens that are there take dt, shared ones once
  double reserved = 0;       ///< ∫ what sequences have dt
  double kept = 0;           ///< ∫ what is kept for later: cached prefixes, mapped pages dt
  double short_seconds = 0;  ///< s in which a request waits for memory
  double external = 0;       ///< ∫ what is free dt over short_seconds
  std::uint64_t peak = 0;    ///< most that sequences had
  std::uint64_t maps = 0, unmaps = 0;
};

/// Seconds of a step (cost::EngineStep, or a formula).
using StepPrice = std::function<double(const cost::StepWork&)>;

/// Its memory, empty. Throws Error(usage) for settings that cannot be.
std::unique_ptr<Allocator> engine_memory(const EngineSettings& settings, const requests::RequestTrace& trace,
                                         const prefix::PrefixTree* tree);

class Engine {
 public:
  /// `tree`: of the trace, for engines with a prefix cache. All must outlive the engine. Throws Error(usage)
  /// for settings that cannot be.
  Engine(const EngineSettings& settings, const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
         StepPrice price, std::vector<RequestOutcome>& outcomes);

  /// Of a request that the empty memory can hold.
  void arrive(std::uint32_t request) { waiting_.push_back({.request = request}); }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  bool in_step() const { return in_step_; }
  double step_end() const { return step_end_; }
  /// Requests that have arrived and not ended.
  std::size_t unfinished() const { return waiting_.size() + running_.size(); }
  /// Tokens of the request's prompt that are there, on the device.
  std::uint64_t found(std::uint32_t request) const;

  /// Begins a step; there must be none in progress, and something to do.
  void start_step(double now);
  /// Ends it; appends the requests that have ended.
  void end_step(std::vector<std::uint32_t>& ended);

  const EngineUse& use() const { return use_; }

 private:
  /// A request that has arrived. Known tokens are those of the prompt and the generated ones; when all of
  /// them are computed, there is one more.
  struct Sequence {
    std::uint32_t request = 0;
    Place place = 0;
    std::uint64_t computed = 0, generated = 0, in_this_step = 0;
    bool started = false, swapped = false;
  };
  std::uint64_t known(const Sequence& sequence) const {
    return trace_.requests[sequence.request].prompt_tokens + sequence.generated;
  }

  /// Tokens that it may find: of its prompt, and not all, because the last one known must be computed.
  std::uint64_t shareable(const Sequence& sequence) const {
    return std::min<std::uint64_t>(trace_.requests[sequence.request].prompt_tokens, known(sequence) - 1);
  }

  void schedule(double now);
  bool admit(Sequence& sequence, double now);
  /// Gives the sequence its part of the step.
  void take_part(Sequence& sequence, std::uint64_t tokens);
  void preempt_last(double now);
  /// Copies its keys and values, one way.
  void swap(const Sequence& sequence);
  void wait_for_copy(std::uint32_t request, const std::vector<Run>& runs);
  /// Copies what the host has of the prompt behind the `found` tokens that the device has; returns the
  /// tokens that are there then.
  std::uint64_t load(const Sequence& sequence, std::uint64_t found);
  void token(Sequence& sequence);
  void leave(Sequence& sequence, double now);
  void count(double seconds);

  const EngineSettings settings_;
  const requests::RequestTrace& trace_;
  const prefix::PrefixTree* const tree_;
  const StepPrice price_;
  std::vector<RequestOutcome>& outcomes_;
  std::unique_ptr<Allocator> memory_;
  PrefixMemory* prefixes_ = nullptr;  ///< memory_, where it is one
  std::optional<HostPrefixes> host_{};
  std::deque<Sequence> waiting_{};
  std::vector<Sequence> running_{};  ///< in the order in which they were admitted
  std::vector<Place> free_places_{};
  std::uint64_t host_tokens_ = 0;  ///< swapped out

  bool in_step_ = false, waits_for_memory_ = false;
  double step_end_ = 0;
  std::uint64_t left_ = 0;   ///< tokens that the step may still compute
  double swap_seconds_ = 0;  ///< of this step
  std::vector<cost::Chunk> chunks_{};
  cost::StepWork work_{};
  EngineUse use_{};
};

}  // namespace kvsim::serving
