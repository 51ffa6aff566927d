#pragma once
/// What a prefix cache can hold, what a cached token takes, and what the cache saves.
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "sim/replay/budget.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::analysis {

/// What a prefix cache saves: seconds and operations of prefills on a machine.
struct PrefillWork {
  double seconds = 0, flops = 0;
};

/// Of prefills of one sequence without a policy, by sim/cost.
class PrefillCost {
 public:
  PrefillCost(cost::Model model, cost::Machine machine, cost::Serving serving);

  /// Of a prompt of which the first `cached` tokens are there. At least one token is computed, since the
  /// first answer token follows from the last one of the prompt. Nothing for a prompt without tokens.
  PrefillWork of(std::uint64_t prompt, std::uint64_t cached) const;
  /// Seconds that a block adds to a prefill that reaches its end, by the number of blocks before it: what
  /// policies of cost weigh. A block deep in a prompt takes longer, because its tokens attend to all before
  /// them.
  std::vector<double> seconds_of_blocks(std::uint32_t block_tokens, std::size_t blocks) const;

  const cost::Model& model() const { return model_; }
  const cost::Machine& machine() const { return machine_; }

 private:
  cost::Model model_;
  cost::Machine machine_;
  cost::Serving serving_;
};

/// Capacities of prefix caches, and what a cached token takes.
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
