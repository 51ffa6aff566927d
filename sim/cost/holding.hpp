#pragma once
/// How many tokens each lane holds while a sequence is served: from closed forms, or from a replay.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/storage.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::cost {

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Bits of a lane with a representation, after the prompt and after the last generated token.
struct CountedBits {
  double kept = 0, held = 0;
  bool operator==(const CountedBits&) const = default;
};

/// Neighbouring lanes with equal numbers of tokens. After the prompt each holds `after_prompt`, after s > 0
/// generated tokens min(after_prompt + s, limit); a limit below after_prompt means that decoding evicts more
/// than it adds.
struct EqualLanes {
  std::uint64_t lanes = 0;
  std::uint64_t after_prompt = 0;
  std::uint64_t limit = kNoLimit;
  /// What a replay counted for each of them, where it stored numbers as the cost model does.
  std::optional<CountedBits> counted{};
  /// Of the tokens that their queries read together at a step, the share that the step before has read, too,
  /// where a selection was replayed.
  std::optional<double> hits{};

  std::uint64_t at(std::uint64_t step) const;
  /// At most `most` of them, those generated first: what leaves is of the prompt.
  LaneTokens tokens(std::uint64_t step, std::uint64_t most = kNoLimit) const;
  bool operator==(const EqualLanes&) const = default;
};

/// Neighbouring layers with equal numbers of tokens and one window.
struct EqualLayers {
  std::uint64_t layers = 0;
  std::vector<EqualLanes> lanes{};  ///< in order of head; their counts add up to the stored KV heads
  std::uint64_t window = 0;         ///< as Model::window_runs() has it

  /// Returns how many of `count` tokens, the newest included, the newest attends to.
  std::uint64_t within_window(std::uint64_t count) const {
    return window == 0 ? count : std::min(count, window);
  }

  std::uint64_t tokens(std::uint64_t step) const;   ///< sum over the lanes of one layer
  std::uint64_t longest(std::uint64_t step) const;  ///< the most tokens of a lane of one layer
};

/// The groups of equal layers, from the first layer to the last.
struct Holding {
  std::vector<EqualLayers> layers{};

  std::uint64_t tokens(std::uint64_t step) const;  ///< sum over all lanes
};

/// Returns all layers with `tokens` tokens in each of their lanes, windows or not.
Holding whole_holding(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t tokens);

/// Returns what sequences hold that evict nothing: `prompt` tokens after the prompt, then all that come, no
/// more than the window of a layer that has one.
Holding full_holding(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t prompt);

/// Throws Error(bug) unless `holding` has every layer of the model with all its lanes and its window.
void check_holding(const Model& model, std::uint64_t stored_kv_heads, const Holding& holding);

/// Returns what a policy holds by its rule: min(budget, prompt) tokens per lane after the prompt, split as
/// its allocation splits by position in the model or by a file (pyramid, exempt, fixed). An allocation that
/// needs a trace to split (xkv, adakv) is taken as uniform, which has the same total. Whole blocks and shares
/// that are evicted at once (granularity, drop) are taken as full, which is an upper limit. Evictions with a
/// budget of their own hold all tokens, and `budget` is ignored. `stored_kv_heads`: a multiple of the
/// model's; 0: the model's. Throws Error(usage) when the budget is below the policy's floor or above prompt +
/// generate, for
/// oracles, and as the allocation does.
/// No lane holds more than the sliding window of its layer, because runtimes free tokens that no later token
/// attends to. `share`: the budget is this share of what a lane can hold of the prompt, as in a replay;
/// empty: it is a number of tokens.
Holding rule_holding(const policy::Composition& composition, const Model& model,
                     std::uint64_t stored_kv_heads, std::uint64_t prompt, std::uint64_t generate,
                     std::uint64_t budget, std::optional<double> share = {});

/// Returns whether the allocation splits by measurements on a prompt, which rule_holding() takes as uniform.
bool splits_by_trace(const policy::Composition& composition);

/// Returns what a replayed cell held, lane by lane: exact after the prompt and at the last step, and between
/// them for lanes that only grow or have stopped growing. `stored_kv_heads` is a multiple of the outcome's
/// heads: each lane is stored that many times; 0: once. `model` says which layers have a window. What a
/// representation took is as counted, if the trace's numbers have `element_bits`; a ledger, which knows no
/// evictions, says it otherwise. Throws Error(bug) for a skipped cell.
Holding replayed_holding(const sim::Outcome& outcome, const sim::CellOutcome& cell, const Model& model,
                         std::uint64_t stored_kv_heads, std::uint64_t element_bits = 16);

/// Returns the cost of the eviction, the allocation and the representation, per layer and sequence; keys,
/// values and scores count 16 bits, lanes that are stored several times count once. Throws Error(usage) for
/// oracles, which cannot be built, and where the model's shape does not suit the representation.
policy::Cost cost_of(const policy::Composition& composition, const Model& model, std::uint64_t prompt,
                     std::uint64_t budget);

}  // namespace kvsim::cost
