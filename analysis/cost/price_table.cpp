#include "analysis/cost/price_table.hpp"

#include <algorithm>
#include <map>

#include "analysis/cost/cost_study.hpp"
#include "analysis/cost/reference_layer.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::uint64_t kLongPrompt = 131072;

/// What the rule reads, beside what flash attention gives.
struct Needs {
  std::string prompt_rows, decode_rows;
};

Needs needs_of(const policy::Composition& policy) {
  // Which rows a rule reads does not depend on the sizes.
  policy::Cost cost =
      combined(policy.eviction.cost(kReferenceLayer), policy.allocation.cost(kReferenceLayer));
  if (policy.representation) cost = combined(cost, policy.representation->cost(kReferenceLayer));
  return {prompt_rows_text(cost), cost.decode_rows ? "yes" : "no"};
}

std::vector<Value> row_of(const CostRow& row, const Needs& needs) {
  std::vector<Value> out{row.policy,
                         row.params,
                         text_or_none(row.budget),
                         needs.prompt_rows,
                         needs.decode_rows,
                         text_or_none(row.model),
                         text_or_none(row.machine)};
  const auto& estimate = row.estimate;
  const bool asked = !row.machine.empty();
  out.push_back(asked ? Value(row.prompt) : Value());
  out.push_back(asked ? Value(row.generate) : Value());
  if (!estimate) {
    out.resize(price_columns().size());
    return out;
  }
  out.emplace_back(std::string(estimate->fits ? "yes" : "no"));
  out.emplace_back(estimate->peak());
  out.emplace_back(estimate->at_end.cache());
  out.emplace_back(estimate->time.first_token);
  out.emplace_back(estimate->time.per_token);
  return out;
}

}  // namespace

std::vector<std::uint64_t> usual_prompts(std::uint64_t longest_studied, const cost::Model& model) {
  const std::uint64_t most = model.max_context > 0 ? std::min(model.max_context, kLongPrompt) : kLongPrompt;
  if (longest_studied == 0 || longest_studied >= most) return {most};
  return {longest_studied, most};
}

const std::vector<ColumnInfo>& price_columns() {
  static const std::vector<ColumnInfo> columns{
      {"policy", "", "composition, as a table shows it"},
      {"params", "", "composition with every effective parameter"},
      {"budget", "", "budget, as given; null: the policy has a size of its own, or nothing was priced"},
      {"prompt_rows", "",
       "attention rows of the prompt that the rule reads and flash attention does not keep: all, the last so "
       "many, or none"},
      {"decode_rows", "", "yes or no: whether it reads the attention row of each generated token too"},
      {"model", "", "model that is served; null: the study names no machine"},
      {"machine", "", "machine that serves it, one sequence at a time"},
      {"prompt", "tokens", "of the sequence"},
      {"generate", "tokens", "generated after it"},
      {"fits", "", "yes or no: peak_bytes within the machine's memory"},
      {"peak_bytes", "bytes", "most memory at any time: weights, cache, activations, the policy's own"},
      {"cache_bytes", "bytes", "of the cache after the last token, the policy's own data included"},
      {"ttft_seconds", "s", "time to the first token, policy included"},
      {"tpot_seconds", "s", "time per further token"}};
  return columns;
}

Records price_records(const std::vector<policy::Composition>& policies,
                      const std::vector<sim::Budget>& budgets, const std::optional<PriceQuestion>& question) {
  Records out{price_columns(), {}};
  std::map<std::string, Needs> needs;
  for (const policy::Composition& policy : policies) needs.emplace(policy.params, needs_of(policy));
  if (!question) {
    for (const policy::Composition& policy : policies) {
      CostRow row;
      row.policy = policy.name;
      row.params = policy.params;
      out.rows.push_back(row_of(row, needs.at(policy.params)));
    }
    return out;
  }
  CostStudy study;
  study.model = question->model;
  study.machine = question->machine;
  study.prompts = question->prompts;
  study.generates = {question->generate};
  study.batches = {1};
  study.policies = policies;
  study.budgets = budgets;
  for (const CostRow& row : cost_rows(study)) out.rows.push_back(row_of(row, needs.at(row.params)));
  return out;
}

}  // namespace kvsim::analysis
