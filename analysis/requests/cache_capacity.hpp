#pragma once
/// Capacities of prefix caches, and what a cached token takes.
#include <cstdint>
#include <optional>

#include "policies/api/composition.hpp"
#include "sim/cost/holding.hpp"
#include "sim/replay/budget.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::analysis {

struct CacheCapacity {
  std::uint64_t blocks = 0;              ///< whole ones, from 1
  std::uint64_t tokens = 0;              ///< of these blocks
  std::optional<std::uint64_t> bytes{};  ///< as asked, or what the blocks take; none: of no model
};

/// Tokens of a prompt of the trace, the mean rounded down; 1 at least.
std::uint64_t mean_prompt(const requests::RequestTrace& trace);

/// What is kept of a cached prompt.
struct StoredPrompt {
  double bytes = 0;  ///< on one device: keys, values, padding and the policy's metadata
  cost::Holding holding{};
};
/// What `stored` keeps of a prompt of `tokens` tokens at the budget, which is that of such a prompt; tables
/// that all prompts share are left out. Throws Error(usage) as cost::rule_holding, and for a policy without a
/// budget that needs one.
StoredPrompt stored_prompt(const serving::ServedModel& served, const policy::Composition& stored,
                           const std::optional<sim::Budget>& budget, std::uint64_t tokens);
/// Its bytes over its tokens.
double stored_token_bytes(const serving::ServedModel& served, const policy::Composition& stored,
                          const std::optional<sim::Budget>& budget, std::uint64_t tokens);

}  // namespace kvsim::analysis
