#include "sim/replay/replay_unit.hpp"

#include <algorithm>

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

}  // namespace kvsim::sim
