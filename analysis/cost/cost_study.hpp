#pragma once
/// Estimates over everything that is asked: policies, budgets and workloads, every one with every other.
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/cost/cost_rows.hpp"
#include "policies/api/composition.hpp"
#include "sim/replay/budget.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

/// Another model, and how it is served, but for prompt, generated tokens and batch.
struct OtherModel {
  cost::Model model{};
  cost::Serving serving{};
};

struct CostStudy {
  cost::Model model{};
  cost::Machine machine{};
  cost::Serving serving{};                                       ///< but for what the next three say
  std::vector<std::uint64_t> prompts{}, generates{}, batches{};  ///< at least one of each
  std::vector<policy::Composition> policies{};
  std::vector<sim::Budget> budgets{};  ///< may be empty when every policy has a size of its own
  std::optional<double> acceptance{};  ///< of tokens that each cache drafts for the full one; none: not asked
  std::optional<OtherModel> predictor{};  ///< of which the model's cache is predicted; none: not asked
  std::optional<OtherModel> drafter{};    ///< whose caches draft; none: the model's own do
  /// The drafter's own cache, which drafts for the policies' caches of the model, which draft for the full
  /// one; none: these are the drafter's.
  std::optional<sim::Cell> draft_cache{};
  double draft_acceptance = 0;       ///< of tokens that it drafts for them
  std::uint64_t draft_parallel = 1;  ///< of the drafter's layers whose attention is computed at once
  std::optional<double> computed{};  ///< share of prompts of documents, as cost::assembly_time() takes it
  std::optional<cost::Tier> documents{};  ///< where these lie; none: on the device
  unsigned threads = 0;                   ///< 0: all. Never changes a row

  std::uint64_t points() const;
};

/// Tokens per lane: a share is of the prompt, bytes are of one sequence's keys and values as `layout` and the
/// composition store them on all devices together; rounded down. Throws Error(usage) when it comes to less
/// than one token. Bytes of a representation are counted up to a token more than the whole sequence.
std::uint64_t budget_tokens(const sim::Budget& budget, const cost::Model& model, const cost::Layout& layout,
                            const policy::Composition& composition, std::uint64_t prompt,
                            std::uint64_t generate);

/// By prompt, generate, batch, budget, policy, each in the order given; a policy with a size of its own
/// stands with the first budget only. A point that cannot be (a budget above its context, below what its
/// policy always keeps, sizes beyond 64 bits) is skipped with the reason. Throws Error(usage) with the first
/// reason when no point can be.
std::vector<CostRow> cost_rows(const CostStudy& study);

/// Throws Error(usage) with the first reason when every row was skipped.
void refuse_only_skipped(const std::vector<CostRow>& rows);

/// What the lanes of a replay held instead of what rules say: a row per cell, in the order of the request, of
/// the outcome's prompt and decode tokens at the study's first batch. `trace` is its name. Skipped cells, and
/// cells that cannot be, are skipped.
std::vector<CostRow> replayed_cost_rows(const CostStudy& study, const std::string& trace,
                                        const sim::Request& request, const sim::Outcome& outcome);

}  // namespace kvsim::analysis
