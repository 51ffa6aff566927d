#pragma once
/// A model on a machine as an engine sees it: seconds of steps, bytes of tokens, room for them. All of it is
/// what sim/cost says.
#include <cstdint>
#include <functional>
#include <optional>

#include "sim/cost/engine_step.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "sim/requests/serving/engine.hpp"

namespace kvsim::serving {

/// How tokens are kept where an eviction or a representation makes them smaller than they come.
struct KeptTokens {
  double bytes = 0;  ///< of a token on one device: of memory, of what a decoding step reads, and of copies
  /// What a decoding step reads of the tokens before it, as a share of what it reads of them as they come: in
  /// a layer without a window, and in one with the window. None: bytes / token_bytes(), in both.
  struct Read {
    double all = 1, within_window = 1;
  };
  std::optional<Read> read{};
  /// Seconds beside those of a prefill that compressing a prompt of so many tokens takes; none: no time.
  std::function<double(std::uint64_t prompt)> compression{};
  /// Seconds that the policy adds to a step in which so many sequences decode; none: no time.
  std::function<double(std::uint64_t decoding)> step{};
};

struct ServedModel {
  cost::Model model{};
  cost::Machine machine{};
  cost::Serving serving{};           ///< layout, runtime and devices; the workload is the trace's
  std::optional<KeptTokens> kept{};  ///< none: every token as `serving` says
};

/// Bytes of the keys and values of one token on one device, rounded up: in all layers, whatever their window.
std::uint64_t token_bytes(const ServedModel& served);
/// Whether a sequence takes more than its tokens times token_bytes(), or less: some layers have a window or
/// hold a state, or `serving` has a representation. cost::sequence_bytes says then what it takes.
bool tokens_differ(const ServedModel& served);
/// Bytes of a device that are left for keys and values: `share` of its memory (vLLM's
/// gpu_memory_utilization) without weights, what the runtime reserves, and the activations of a step of
/// `step_tokens` tokens. Throws Error(usage) where nothing is left.
std::uint64_t cache_bytes_left(const ServedModel& served, std::uint64_t step_tokens, double share);
/// Tokens of a page group: of the pages of `page_bytes` bytes that keys and values of every layer have
/// (vAttention); 0 where a page holds no token.
std::uint64_t page_group_tokens(const ServedModel& served, std::uint64_t page_bytes);

/// Fills in what follows from model and machine: room for `cache_bytes` bytes, the longest sequence, page
/// groups, links, the window. The memory is in bytes where tokens differ and no prefix cache shares blocks,
/// which every layer keeps as a whole. Throws Error(usage) for a prefix cache of a model with states, and for
/// swaps of what is counted in bytes.
EngineSettings engine_settings(const ServedModel& served, EngineSettings settings, std::uint64_t cache_bytes,
                               std::uint64_t page_bytes);
/// The price of a step; each has tables of its own, for one thread. Prompts are computed with their own
/// tokens as they come, also with those found in a cache: an upper limit where these are fewer.
StepPrice step_price(const ServedModel& served);

}  // namespace kvsim::serving
