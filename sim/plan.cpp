#include "sim/plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/finite_read.hpp"
#include "sim/importance.hpp"

namespace kvsim::sim {
namespace {

/// w per layer: the mean over all query heads, one vector per layer.
std::vector<std::vector<float>> layer_importance(const trace::Sequence& sequence,
                                                 const policy::ImportanceSpec& spec, Workers& workers,
                                                 Progress& progress) {
  const trace::Model& model = sequence.model();
  const std::size_t lanes = std::size_t{model.n_layers} * model.n_kv_heads, prompt = sequence.prompt_length();
  std::vector<std::vector<float>> per_lane(lanes);
  workers.run(lanes, [&](std::size_t lane) {
    progress.check();
    const auto layer = static_cast<std::uint32_t>(lane / model.n_kv_heads);
    const auto head = static_cast<std::uint32_t>(lane % model.n_kv_heads);
    std::vector<float> keys(prompt * model.head_dim);
    read_finite(sequence, trace::Tensor::key, layer, head, 0, prompt, keys);
    per_lane[lane] =
        lane_importance(sequence, layer, head, {keys.data(), prompt, model.head_dim, model.head_dim}, spec);
  });
  std::vector<std::vector<float>> out;
  for (std::size_t layer = 0; layer < model.n_layers; ++layer) {
    std::vector<float> mean(per_lane[layer * model.n_kv_heads].size(), 0.0F);
    for (std::size_t j = 0; j < mean.size(); ++j) {
      double sum = 0;
      for (std::size_t head = 0; head < model.n_kv_heads; ++head)
        sum += per_lane[layer * model.n_kv_heads + head][j];
      mean[j] = static_cast<float>(sum / model.n_kv_heads);
    }
    out.push_back(std::move(mean));
  }
  return out;
}

/// Importance per spec, computed when first asked for.
class ImportanceCache {
 public:
  ImportanceCache(const trace::Sequence& sequence, Workers& workers, Progress& progress)
      : sequence_(&sequence), workers_(&workers), progress_(&progress) {}
  const std::vector<std::vector<float>>& get(const policy::ImportanceSpec& spec) {
    auto [entry, fresh] = cache_.try_emplace({spec.window, spec.pool});
    if (fresh) entry->second = layer_importance(*sequence_, spec, *workers_, *progress_);
    return entry->second;
  }

 private:
  const trace::Sequence* sequence_;
  Workers* workers_;
  Progress* progress_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::vector<float>>> cache_;
};

/// The trace may hold the queries of the last prompt rows only.
void check_queries(const trace::Sequence& sequence, std::size_t rows_needed, const std::string& who) {
  const std::size_t prompt = sequence.prompt_length(), needed = std::min(rows_needed, prompt);
  if (sequence.first_query() <= prompt - needed) return;
  usage_error("needs the queries of the last " + std::to_string(needed) + " of " + std::to_string(prompt) +
                  " prompt positions; the trace stores them from position " +
                  std::to_string(sequence.first_query()) + " on (capture with --queries all)",
              who);
}

std::vector<std::size_t> lane_budgets(const trace::Sequence& sequence, const policy::Composition& composition,
                                      std::size_t budget, ImportanceCache& importance) {
  const trace::Model& model = sequence.model();
  const std::size_t lanes = std::size_t{model.n_layers} * model.n_kv_heads, prompt = sequence.prompt_length();
  const policy::PolicySpec& eviction = *composition.eviction.spec;
  if (eviction.unbounded) return std::vector<std::size_t>(lanes, sequence.length());
  if (budget >= prompt)
    return std::vector<std::size_t>(lanes, budget);  // nothing to split: every lane holds its prompt

  const auto allocation = composition.allocation.spec->make_allocation(composition.allocation.params);
  policy::AllocationRequest request;
  request.n_layers = model.n_layers;
  request.n_kv_heads = model.n_kv_heads;
  request.prompt = prompt;
  request.budget = budget;
  request.floor = composition.floor();
  if (const policy::ImportanceSpec* spec = allocation->importance()) {
    check_queries(sequence, spec->window, composition.name);
    for (const auto& w : importance.get(*spec)) request.importance.emplace_back(w);
  }
  std::vector<std::size_t> budgets = allocation->allocate(request);
  const std::size_t total = std::accumulate(budgets.begin(), budgets.end(), std::size_t{0});
  if (budgets.size() != lanes || total > budget * lanes)
    bug("allocation '" + composition.allocation.spec->name + "' gave " + std::to_string(total) +
        " tokens to " + std::to_string(budgets.size()) + " lanes instead of " +
        std::to_string(budget * lanes) + " to " + std::to_string(lanes));
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const bool shared = composition.layer_unit() && budgets[lane] != budgets[lane - lane % model.n_kv_heads];
    if (budgets[lane] < std::min(request.floor, prompt) || budgets[lane] == 0 || budgets[lane] > prompt ||
        shared)
      bug("allocation '" + composition.allocation.spec->name + "' gave lane " + std::to_string(lane) + " " +
          std::to_string(budgets[lane]) + " tokens");
  }
  return budgets;
}

Family make_family(const trace::Sequence& sequence, const policy::Composition& composition,
                   std::uint64_t seed) {
  Family family;
  family.eviction = &composition.eviction;
  family.layer_unit = composition.layer_unit();
  const trace::Model& model = sequence.model();
  const policy::Unit shape = unit_of(model, 0, 0, family.layer_unit ? model.n_kv_heads : 1, seed);
  const auto probe = composition.eviction.spec->make_eviction(composition.eviction.params, shape);
  family.prompt_rows = std::min<std::size_t>(probe->prompt_rows(), sequence.prompt_length());
  check_queries(sequence, family.prompt_rows, composition.name);
  return family;
}

/// Throws Error(usage) when the cell's budget is not one its policy can honour.
Plan::CellPlan plan_cell(const trace::Sequence& sequence, const Cell& cell, ImportanceCache& importance) {
  const policy::Composition& composition = cell.composition;
  Plan::CellPlan out;
  out.budget_tokens = budget_tokens(cell.budget, sequence);
  if (!composition.eviction.spec->unbounded && out.budget_tokens < composition.floor())
    usage_error("keeps " + std::to_string(composition.floor()) +
                    " tokens in every lane whatever their score; budget '" + cell.budget.text + "' is " +
                    std::to_string(out.budget_tokens),
                composition.name);
  out.lane_budget = lane_budgets(sequence, composition, out.budget_tokens, importance);
  return out;
}

}  // namespace

policy::Unit unit_of(const trace::Model& model, std::uint32_t layer, std::uint32_t first_head,
                     std::uint32_t n_lanes, std::uint64_t seed) {
  policy::Unit unit;
  unit.layer = static_cast<int>(layer);
  unit.n_layers = static_cast<int>(model.n_layers);
  unit.first_kv_head = static_cast<int>(first_head);
  unit.n_lanes = static_cast<int>(n_lanes);
  unit.group = static_cast<int>(model.group());
  unit.head_dim = static_cast<int>(model.head_dim);
  unit.value_dim = static_cast<int>(model.v_head_dim);
  unit.seed = seed;
  return unit;
}

Plan make_plan(const trace::Sequence& sequence, const Request& request, Workers& workers,
               Progress& progress) {
  if (request.cells.empty()) usage_error("no cell to evaluate");
  const trace::Model& model = sequence.model();
  if (model.logit_softcap != 0)
    input_error("records a model with logit soft-capping, which replay does not compute yet",
                sequence.source().name());
  if (sequence.first_query() > sequence.prompt_length())
    input_error("does not store the query of every generated token", sequence.source().name(),
                "Replay answers each of them: capture again with --queries all or --queries window:W.");

  Plan plan;
  ImportanceCache importance(sequence, workers, progress);
  std::map<std::string, std::size_t> family_of;
  for (const Cell& cell : request.cells) {
    const policy::Part& eviction = cell.composition.eviction;
    const std::string key = eviction.spec->name + "(" + eviction.params.text() + ")";
    try {
      const auto known = family_of.find(key);
      std::size_t family = plan.families.size();
      if (known != family_of.end()) {
        family = known->second;
        plan.cells.push_back(plan_cell(sequence, cell, importance));
      } else {
        Family fresh = make_family(sequence, cell.composition, request.seed);
        plan.cells.push_back(plan_cell(sequence, cell, importance));
        plan.layer_groups = plan.layer_groups || fresh.layer_unit;
        plan.prompt_rows = std::max(plan.prompt_rows, fresh.prompt_rows);
        plan.families.push_back(std::move(fresh));
        family_of.emplace(key, family);
      }
      plan.families[family].cells.push_back(plan.cells.size() - 1);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      plan.cells.emplace_back().skipped = error.what();
    }
  }
  return plan;
}

}  // namespace kvsim::sim
