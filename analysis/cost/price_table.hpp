#pragma once
/// What each policy of a study asks of whoever serves it: the attention rows that its rule reads, and, on a
/// machine, bytes and seconds. Formulas: sim/cost/README.md.
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/results/records.hpp"
#include "policies/api/composition.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/replay/budget.hpp"

namespace kvsim::analysis {

inline constexpr const char* kPriceTable = "price";

/// Which model is served on which machine, and how long the prompts are; one sequence at a time.
struct PriceQuestion {
  cost::Model model{};
  cost::Machine machine{};
  std::vector<std::uint64_t> prompts{};  ///< tokens
  std::uint64_t generate = 256;          ///< tokens after them
};

/// The prompts that are priced if nobody says which: the longest that was studied, and the longest that the
/// model takes, at most 128K, where the policies that need much show it.
std::vector<std::uint64_t> usual_prompts(std::uint64_t longest_studied, const cost::Model& model);

const std::vector<ColumnInfo>& price_columns();

/// One row per policy at each budget and prompt, the policies with a size of their own once per prompt;
/// without a question one row per policy, with what its rule reads. `policies`: no oracles, which nobody can
/// serve. A point that cannot be has no numbers. Throws Error(usage) when none can be, or a budget comes to
/// less than a token.
Records price_records(const std::vector<policy::Composition>& policies,
                      const std::vector<sim::Budget>& budgets, const std::optional<PriceQuestion>& question);

}  // namespace kvsim::analysis
