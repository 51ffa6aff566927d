#include "sim/replay/selected_units.hpp"

namespace kvsim::sim {

SelectedUnits::SelectedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                             const policy::Tables* tables)
    : tensors_(&tensors),
      parts_(
          plan, &Plan::CellPlan::selection, plan.selection_groups, tensors, seed, tables,
          [](const policy::Part& part, const policy::CacheUnit& unit) { return part.make_selection(unit); }) {
}

void SelectedUnits::read_leaders() {
  for (const auto& [of, selection] : parts_.all()) {
    const std::optional<int> layer = selection->leader();
    if (!layer) continue;
    LaneGroup there = tensors_->group();
    there.layer = static_cast<std::uint32_t>(*layer);
    leaders_.try_emplace(*layer, tensors_->sequence(), there, policy::Needs{.queries = true});
  }
}

std::optional<int> SelectedUnits::leader(const ReplayUnit& unit, std::size_t cell) const {
  const policy::Selection* selection = parts_.of(unit, cell);
  return selection == nullptr ? std::nullopt : selection->leader();
}

template <class Use>
void SelectedUnits::with_tokens(const ReplayUnit& unit, const Cache& cache, const GroupTensors& tensors,
                                Use use) const {
  if (cache.stored) return use(policy::StoredTokens(cache.stored->rows()));
  thread_local std::vector<policy::LaneRows> lanes;
  lanes.clear();
  for (std::size_t lane = unit.first_lane(); lane < unit.first_lane() + unit.n_lanes(); ++lane)
    lanes.push_back({.keys = tensors.keys(lane), .values = tensors.values(lane)});
  use(policy::StoredTokens(cache.residents.slots(), lanes));
}

void SelectedUnits::begin(const ReplayUnit& unit, Cache& cache, std::size_t cell,
                          const policy::StoredTokens* tokens) const {
  const policy::Selection* selection = parts_.of(unit, cell);
  if (selection == nullptr) return;
  const GroupTensors& tensors = tensors_of(selection->leader());
  cache.reads = std::make_unique<SelectedReads>(parts_.group(cell)->part->spec->name, selection->selector(),
                                                unit.n_lanes(), tensors_->sequence().model().group());
  const GroupTensors::PromptView prompt(tensors, unit.first_lane());
  if (tokens) return cache.reads->begin(prompt, *tokens);
  with_tokens(unit, cache, tensors,
              [&](const policy::StoredTokens& recorded) { cache.reads->begin(prompt, recorded); });
}

void SelectedUnits::select(const ReplayUnit& unit, Cache& cache, std::size_t position,
                           const RowBlock& rows) const {
  if (!cache.reads) return;
  const std::optional<int> layer = leader(unit, cache.cell);
  const GroupTensors& tensors = tensors_of(layer);
  const std::size_t group = tensors_->sequence().model().group();
  const policy::Asking asking{
      .position = cache.own,
      .own_slot = cache.slot_of_own(),
      .queries = layer ? tensors.token_queries(unit.first_lane() * group, unit.n_lanes() * group, position)
                       : rows.queries(unit.first_lane(), unit.n_lanes(), position - rows.first()),
      .scale = tensors_->sequence().model().attn_scale,
      .cap = tensors_->sequence().model().logit_softcap};
  with_tokens(unit, cache, tensors,
              [&](const policy::StoredTokens& tokens) { cache.reads->select(asking, tokens); });
}

}  // namespace kvsim::sim
