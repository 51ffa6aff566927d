#pragma once
/// Tidy rows of cost estimates: one per point of a study, every number in bytes or seconds. The keys, their
/// order and their descriptions stand in cost_columns() once; every export and every figure follows it.
/// Formulas: sim/cost/README.md.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/cost/drafting.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/prompt_shortcuts.hpp"

namespace kvsim::analysis {

/// One point: a policy at a budget serving a workload on a machine.
struct CostRow {
  std::string model{}, machine{};
  std::uint64_t machine_memory = 0;  ///< bytes of one device; 0: not known
  std::string trace{};               ///< holdings are what a replay of it held; empty: by the policy's rule
  std::string policy{}, params{};
  std::string budget{};  ///< as typed; empty: the policy has a size of its own
  std::uint64_t prompt = 0, generate = 0, batch = 0;
  std::optional<cost::Estimate> estimate{};          ///< nothing: the point cannot be
  std::optional<std::uint64_t> largest_batch{};      ///< within the machine's memory; nothing: not asked
  std::optional<cost::Drafting> drafting{};          ///< for the full cache; nothing: not asked
  std::string drafter{};                             ///< another model that drafts; empty: none
  std::optional<cost::Drafting> inner{};             ///< for this cache, of a hierarchy; nothing: not asked
  std::string helped{};                              ///< the drafter's cache in it; empty: there is none
  double draft_prefill = 0;                          ///< s of the prompt in that model
  std::uint64_t drafted_bytes = 0;                   ///< after the last token, the full cache included
  std::optional<cost::AssemblyTime> assembly{};      ///< of documents' caches; nothing: not asked
  std::optional<cost::PredictionTime> prediction{};  ///< of the cache by a small model's; nothing: not asked
  std::string skipped{};                             ///< why there is no estimate. Not a key
};

/// Operations' columns are `prefill_linear_seconds`, `prefill_linear_bound`, `step_linear_seconds`, ... for
/// every OpClass by its op_name(), and `prefill_host_seconds`, `step_host_seconds`.
const std::vector<ColumnInfo>& cost_columns();
Records cost_records(const std::vector<CostRow>& rows);

}  // namespace kvsim::analysis
