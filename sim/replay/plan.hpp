#pragma once
/// Plans a request for one trace before any heavy work: which cells run, which of them share an eviction
/// policy, and the budget of each lane.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/attention/prompt_segments.hpp"
#include "sim/attention/row_requirement.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

class AllocationPass;

/// The cells whose eviction policy and parameters are equal: the prompt is observed and ranked once for all
/// of them.
struct EvictionGroup {
  const policy::Part* eviction = nullptr;
  policy::Needs needs;
  bool layer_unit = false;
  bool streams = false;        ///< takes the prompt token by token
  RowRequirement requirement;  ///< the prompt rows it requires; empty if it streams
  std::vector<std::size_t> cells;
};

/// A representation or a selection of units of one kind: it observes the prompt once for all cells that use
/// it.
struct PartGroup {
  const policy::Part* part = nullptr;
  policy::Needs needs;
  RowRequirement requirement;  ///< the prompt rows it requires
  /// Some layers are stored together with another (representation), or another chooses for them (selection).
  bool crosses = false;
};

struct Plan {
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct CellPlan {
    std::string skipped;
    std::string idle;                       ///< an allocation that split nothing, in words
    std::size_t budget_tokens = 0;          ///< mean per lane, as asked
    double asked_tokens = 0;                ///< the same, not rounded
    std::vector<std::size_t> layer_budget;  ///< before the allocation, [n_layers]
    std::size_t representation = kNone;     ///< its number in representation_groups; kNone: none
    std::size_t selection = kNone;          ///< its number in selection_groups; kNone: none
    std::vector<std::size_t> lane_budget;   ///< [n_layers * n_kv_heads]; empty when skipped
    std::size_t same_as = kNone;            ///< of run_once(): the cell that runs for this one too
  };
  std::vector<CellPlan> cells;
  std::vector<EvictionGroup> eviction_groups;
  std::vector<PartGroup> representation_groups, selection_groups;
  bool layer_groups = false;  ///< lane groups are whole layers: a set is shared over a layer's lanes, or
                              ///< outputs are projected
  bool bounds = false;        ///< every lane's losses are bounded; never without measured steps
  policy::Needs needs;        ///< of all groups together
  std::vector<policy::Position> evidence;              ///< positions of evidence tokens, ascending
  std::vector<std::optional<PromptSegment>> segments;  ///< [prompt]
};

/// The seed of what is drawn for a prompt: of the run's seed and the tokens before the cut, so that replay
/// and a running model draw alike for one prompt, and prompts do not share their luck. Withheld ids are all
/// the same: of a prompt without ids its length counts.
std::uint64_t prompt_seed(const trace::Sequence& sequence, std::uint64_t seed);

/// Returns the unit of lanes [first_head, first_head + n_lanes) of a layer, as its policy sees it.
policy::CacheUnit cache_unit(const trace::Model& model, std::uint32_t layer, std::uint32_t first_head,
                             std::uint32_t n_lanes, std::uint64_t seed,
                             const policy::Tables* tables = nullptr);

/// Returns whether the representation stores some layers of the model together; false where it does not suit
/// the model's shape.
bool stores_pairs(const trace::Model& model, const policy::Part& representation, std::uint32_t n_lanes);

/// Returns the eviction group of `eviction` without cells; `layer_unit`: the lanes of a layer are one unit.
/// Throws Error(usage) when the trace lacks what the eviction needs.
EvictionGroup make_eviction_group(const trace::Sequence& sequence, const policy::Part& eviction,
                                  bool layer_unit, std::uint64_t seed);

/// Returns whether the policy, or one that it wraps, reads attention on evicted tokens (feedback=raw), which
/// only a full cache computes.
bool reads_full_rows(const policy::Part& part);

/// Returns why a composition cannot run up to `length` tokens of a model whose attention is within chunks:
/// what stores or indexes tokens cannot lose all at the border of two; empty: it can.
std::string chunk_crossing(const trace::Sequence& sequence, const policy::Composition& composition,
                           std::size_t length);

/// Plans everything but lane budgets, from the trace's header alone. Skips and throws as replay() says.
Plan outline(const trace::Sequence& sequence, const Request& request);

/// Fills in lane budgets from the measurements of `allocation_pass` (sim/replay/allocation_pass.hpp), which
/// was made of this plan and has run. Skips further cells for the reasons that their allocations give. A lane
/// that never evicts gets `length`, the tokens that the run reaches.
void split_budgets(const trace::Sequence& sequence, const Request& request,
                   const AllocationPass& allocation_pass, Plan& plan, std::size_t length);

/// Takes out of the groups each cell whose composition and lane budgets an earlier one has, such as a second
/// budget of a policy that drops nothing.
void run_once(const Request& request, std::size_t prompt, Plan& plan);

/// Returns the most tokens that an allocation can give a lane that is not left to grow: the prompt, or a
/// budget that is larger.
std::size_t most_given(const Plan::CellPlan& cell, std::size_t prompt);

}  // namespace kvsim::sim
