#pragma once
/// How many tokens each lane holds while a sequence is served: from closed forms, or from what a replay did.
#include <cstdint>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/cost/model.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::cost {

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Neighbouring lanes that behave alike. After the prompt each holds `after_prompt`, after s > 0 generated
/// tokens min(after_prompt + s, limit); a limit below after_prompt says that decoding gives tokens back.
struct EqualLanes {
  std::uint64_t lanes = 0;
  std::uint64_t after_prompt = 0;
  std::uint64_t limit = kNoLimit;

  std::uint64_t at(std::uint64_t step) const;
  bool operator==(const EqualLanes&) const = default;
};

/// Neighbouring layers that behave alike.
struct EqualLayers {
  std::uint64_t layers = 0;
  std::vector<EqualLanes> lanes{};  ///< in order of head; their counts add up to the stored KV heads

  std::uint64_t tokens(std::uint64_t step) const;   ///< sum over the lanes of one layer
  std::uint64_t longest(std::uint64_t step) const;  ///< of one layer's lanes
};

/// In order of depth.
struct Holding {
  std::vector<EqualLayers> layers{};

  std::uint64_t tokens(std::uint64_t step) const;  ///< sum over all lanes
};

/// Throws Error(bug) unless every layer of the model is there with all its lanes.
void check_holding(const Model& model, std::uint64_t stored_kv_heads, const Holding& holding);

/// What a policy holds by its rule: min(budget, prompt) tokens per lane after the prompt, split as its
/// allocation splits by position in the model or by a file (pyramid, exempt, fixed); one that needs a trace
/// to split (xkv, adakv) is taken as uniform, which has the same total. Whole blocks and shares that leave at
/// once (granularity, drop) are taken as full: at most that is held. Evictions with a budget of their own
/// hold everything, and `budget` is not looked at. `stored_kv_heads`: a multiple of the model's; 0: the
/// model's. Throws Error(usage) when the budget is below the policy's floor or above prompt + generate, for
/// oracles, and as the allocation does.
/// No lane holds more than a sliding window (Model::window): runtimes let go of what no later token attends
/// to. Of what a policy keeps it is taken to be all within the window.
Holding rule_holding(const policy::Composition& composition, const Model& model,
                     std::uint64_t stored_kv_heads, std::uint64_t prompt, std::uint64_t generate,
                     std::uint64_t budget);

/// Whether the allocation splits by what it sees of a prompt, which rule_holding() takes as uniform.
bool splits_by_trace(const policy::Composition& composition);

/// What a replayed cell held, lane by lane: exact after the prompt and at the last step, and between them for
/// lanes that only grow or have stopped growing. `stored_kv_heads` is a multiple of the outcome's heads, each
/// lane is stored so many times; 0: once. A replay knows no window: what it held is held. Throws Error(bug)
/// for a skipped cell.
Holding replayed_holding(const sim::Outcome& outcome, const sim::CellOutcome& cell,
                         std::uint64_t stored_kv_heads);

/// What the eviction and the allocation cost, of one layer and sequence; keys, values and scores are counted
/// in 16 bits, lanes that are stored several times as one. Throws Error(usage) for oracles,
/// which nobody can build.
policy::Cost cost_of(const policy::Composition& composition, const Model& model, std::uint64_t prompt,
                     std::uint64_t budget);

}  // namespace kvsim::cost
