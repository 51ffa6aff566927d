#include "analysis/requests/prefix_costs.hpp"

#include <algorithm>
#include <utility>

#include "analysis/cost/cost_study.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"

namespace kvsim::analysis {

PrefillCost::PrefillCost(cost::Model model, cost::Machine machine, cost::Serving serving)
    : model_(std::move(model)), machine_(std::move(machine)), serving_(std::move(serving)) {}

PrefillWork PrefillCost::of(std::uint64_t prompt, std::uint64_t cached) const {
  if (prompt == 0) return {};
  cost::Serving serving = serving_;
  serving.prompt = prompt;
  const std::uint64_t past = std::min(cached, prompt - 1);
  const cost::PassTime pass = cost::pass_time(model_, machine_, serving, prompt - past, past, true);
  PrefillWork out{.seconds = pass.seconds()};
  for (const cost::OpTime& op : pass.ops) out.flops += op.flops;
  return out;
}

std::vector<double> PrefillCost::seconds_of_blocks(std::uint32_t block_tokens, std::size_t blocks) const {
  std::vector<double> out(blocks);
  double before = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const double whole = of((block + 1) * block_tokens, 0).seconds;
    out[block] = std::max(whole - before, 0.0);
    before = whole;
  }
  return out;
}

std::uint64_t mean_prompt(const requests::RequestTrace& trace) {
  std::uint64_t tokens = 0;
  for (const requests::Request& request : trace.requests) tokens += request.prompt_tokens;
  return std::max<std::uint64_t>(tokens / std::max<std::size_t>(trace.requests.size(), 1), 1);
}

StoredPrompt stored_prompt(const serving::ServedModel& served, const policy::Composition& stored,
                           const std::optional<sim::Budget>& budget, std::uint64_t tokens) {
  if (!budget && !stored.eviction.spec->own_budget())
    usage_error(in_quotes(stored.name) + " must be told how much it keeps", "--budget", "Say it like 25%.");
  cost::Serving serving = cost::served_with(served.serving, stored);
  serving.prompt = tokens;
  serving.generate = 1;
  serving.batch = 1;
  const std::uint64_t kept =
      budget && !stored.eviction.spec->own_budget()
          ? budget_tokens(*budget, served.model, served.serving.layout, stored, tokens, serving.generate)
          : tokens + serving.generate;
  std::optional<double> share;
  if (budget && budget->unit == sim::Budget::Unit::share) share = budget->value;
  cost::Holding holding =
      cost::rule_holding(stored, served.model, cost::stored_heads(served.model, serving.layout), tokens,
                         serving.generate, kept, share);
  const cost::Memory memory = cost::memory_at(served.model, served.machine, serving, holding,
                                              cost::cost_of(stored, served.model, tokens, kept), 0);
  return {static_cast<double>(memory.keys_values + memory.padding + memory.metadata), std::move(holding)};
}

double stored_token_bytes(const serving::ServedModel& served, const policy::Composition& stored,
                          const std::optional<sim::Budget>& budget, std::uint64_t tokens) {
  return stored_prompt(served, stored, budget, tokens).bytes / static_cast<double>(tokens);
}

}  // namespace kvsim::analysis
