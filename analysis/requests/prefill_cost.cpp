#include "analysis/requests/prefill_cost.hpp"

#include <algorithm>
#include <utility>

#include "sim/cost/latency.hpp"

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

}  // namespace kvsim::analysis
