#include "sim/replay/replay_unit.hpp"

#include <algorithm>

#include "sim/replay/budget.hpp"

namespace kvsim::sim {

ReplayUnit::ReplayUnit(const EvictionGroup& eviction_group, const GroupTensors& tensors,
                       std::size_t first_lane, std::size_t n_lanes,
                       std::unique_ptr<policy::Eviction> eviction, const policy::CacheUnit& unit,
                       std::size_t length)
    : eviction_group_(&eviction_group),
      tensors_(&tensors),
      first_lane_(first_lane),
      n_lanes_(n_lanes),
      length_(length),
      driver_(*eviction_group.eviction, std::move(eviction), unit, tensors.sequence().prompt_length(),
              length) {}

void ReplayUnit::start(std::size_t cell, std::size_t budget, bool log) {
  driver_.start(cell, budget, length_, log);
}

void ReplayUnit::store(Cache& cache, const policy::Representation& representation, bool observes,
                       const policy::StorageShape& of_lane, const Token* again) {
  policy::StorageShape shape = of_lane;
  shape.n_lanes = n_lanes_;
  policy::CacheRows rows(shape, std::max(cache.most, cache.residents.slots().size()), length_);
  for (const policy::Position position : cache.residents.slots()) {
    const Token held =
        again && again->position == position ? *again : token(static_cast<std::size_t>(position));
    rows.join({}, position, held.keys, held.values);
  }
  cache.stored = std::make_unique<StoredCache>(representation.codec(), observes, std::move(rows),
                                               GroupTensors::PromptView(*tensors_, first_lane_));
}

Token ReplayUnit::token(std::size_t position) const {
  const std::size_t group = tensors_->sequence().model().group();
  return {static_cast<policy::Position>(position),
          tensors_->token_keys(first_lane_, n_lanes_, position),
          tensors_->token_values(first_lane_, n_lanes_, position),
          tensors_->token_queries(first_lane_ * group, n_lanes_ * group, position),
          tensors_->token_class(position),
          tensors_->surprise(position)};
}

void ReplayUnit::attended(Cache& cache, std::size_t position, const RowBlock& rows) {
  SlotAttention to_slots;
  const bool sinks = !tensors_->sequence().model().sinks.empty();
  if (driver_.needs_rows() && cache.stored)
    to_slots = cache.stored->slot_attention();
  else if (driver_.needs_rows() && cache.reads)
    to_slots = gather_(rows.step(first_lane_, n_lanes_, position - rows.first()), cache.residents.slots(),
                       *cache.reads, sinks);
  else if (driver_.needs_rows())
    to_slots =
        gather_(rows.step(first_lane_, n_lanes_, position - rows.first()), cache.residents.slots(), sinks);
  driver_.attended(cache, token(position), to_slots);
}

std::vector<ReplayUnit> replay_units(const EvictionGroup& eviction_group, const GroupTensors& tensors,
                                     std::uint64_t seed, const policy::Tables* tables,
                                     const FutureOfLanes& future, std::size_t length) {
  if (length == 0) length = tensors.sequence().length();
  const LaneGroup group = tensors.group();
  const std::size_t n_lanes = eviction_group.layer_unit ? group.n_lanes : 1;
  const policy::Part& part = *eviction_group.eviction;
  std::vector<ReplayUnit> out;
  for (std::size_t lane = 0; lane < group.n_lanes; lane += n_lanes) {
    const policy::CacheUnit unit = cache_unit(tensors.sequence().model(), group.layer,
                                              group.first_head + static_cast<std::uint32_t>(lane),
                                              static_cast<std::uint32_t>(n_lanes), seed, tables);
    std::unique_ptr<policy::Eviction> eviction;
    if (part.spec->is_oracle()) {
      auto oracle = part.make_oracle(unit);
      oracle->set_future(future(lane, n_lanes));
      eviction = std::move(oracle);
    } else {
      eviction = part.make_eviction(unit);
    }
    out.emplace_back(eviction_group, tensors, lane, n_lanes, std::move(eviction), unit, length);
  }
  return out;
}

RepresentedUnits::RepresentedUnits(const Plan& plan, const GroupTensors& tensors, std::uint64_t seed,
                                   const policy::Tables* tables)
    : tensors_(&tensors),
      parts_(plan, &Plan::CellPlan::representation, plan.representation_groups, tensors, seed, tables,
             [](const policy::Part& part, const policy::CacheUnit& unit) {
               return part.make_representation(unit);
             }) {}

std::optional<int> RepresentedUnits::partner(const ReplayUnit& unit, std::size_t cell) const {
  const policy::Representation* representation = parts_.of(unit, cell);
  return representation == nullptr ? std::nullopt : representation->partner();
}

void RepresentedUnits::finish_pairs() {
  for (const auto& [of, representation] : parts_.all()) {
    const std::optional<int> layer = representation->partner();
    if (!layer) continue;
    LaneGroup there = tensors_->group();
    there.layer = static_cast<std::uint32_t>(*layer);
    const auto known = partners_.try_emplace(*layer, tensors_->sequence(), there, policy::Needs{}).first;
    representation->finish_pair(GroupTensors::PromptView(*tensors_, of.first_lane),
                                GroupTensors::PromptView(known->second, of.first_lane));
  }
}

void RepresentedUnits::pair(const ReplayUnit& unit, Cache& cache, std::size_t position) const {
  const std::optional<int> layer = partner(unit, cache.cell);
  if (!layer) return;
  const GroupTensors& there = partners_.at(*layer);
  cache.stored->pair(cache.own_slot, there.token_keys(unit.first_lane(), unit.n_lanes(), position),
                     there.token_values(unit.first_lane(), unit.n_lanes(), position));
}

void RepresentedUnits::store(ReplayUnit& unit, Cache& cache, std::size_t cell, const Token* again) const {
  policy::Representation* representation = parts_.of(unit, cell);
  if (representation == nullptr) return;
  policy::StorageShape of_lane = storage_shape(tensors_->sequence());
  of_lane.layer = tensors_->group().layer;
  unit.store(cache, *representation, parts_.group(cell)->needs.decode_rows, of_lane, again);
}

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
