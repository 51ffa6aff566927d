#pragma once
/// One unit of a lane group under one eviction policy, fed from a trace.
#include <functional>
#include <memory>
#include <vector>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/feed/unit_driver.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {

using Cache = ManagedCache<IndexStore>;

class ReplayUnit {
 public:
  /// Covers lanes [first_lane, first_lane + n_lanes) of the group that `tensors` were read for. `length`:
  /// tokens that its caches will see in all.
  ReplayUnit(const EvictionGroup& eviction_group, const GroupTensors& tensors, std::size_t first_lane,
             std::size_t n_lanes, std::unique_ptr<policy::Eviction> eviction, const policy::CacheUnit& unit,
             std::size_t length);

  const EvictionGroup& eviction_group() const { return *eviction_group_; }
  policy::Eviction& eviction() { return driver_.eviction(); }
  const policy::Eviction& eviction() const { return driver_.eviction(); }
  std::size_t first_lane() const { return first_lane_; }
  std::size_t n_lanes() const { return n_lanes_; }
  bool covers(std::size_t lane) const { return lane >= first_lane_ && lane < first_lane_ + n_lanes_; }
  UnitDriver<IndexStore>& driver() { return driver_; }
  std::vector<Cache>& caches() { return driver_.caches(); }
  const std::vector<Cache>& caches() const { return driver_.caches(); }

  /// Returns the policy's subscription to the prompt.
  Subscription subscription() {
    return {&driver_.eviction(), first_lane_, n_lanes_, eviction_group_->requirement};
  }
  /// Begins a cache for a cell. With `log`, its intervals are recorded for decisions.
  void start(std::size_t cell, std::size_t budget, bool log);
  /// From here on the numbers of the cache are what a codec of `representation`, which has seen the prompt,
  /// makes of them. The prompt is over. `observes`: as StoredCache says. `again`: the last prompt token as a
  /// running model has fed it again, if it has.
  void store(Cache& cache, const policy::Representation& representation, bool observes,
             const policy::StorageShape& of_lane, const Token* again = nullptr);
  /// Admits the token at `position` to the cache. `step` is 0 within the prompt.
  void admit(Cache& cache, std::size_t position, std::uint32_t step) {
    driver_.admit(cache, token(position), step);
  }
  void ask_again(Cache& cache, std::size_t position) { driver_.ask_again(cache, token(position)); }
  /// Shows the decoder of the cache the step of the token that joined last. `rows` must cover its position if
  /// the policy needs decode rows.
  void attended(Cache& cache, std::size_t position, const RowBlock& rows);

 private:
  Token token(std::size_t position) const;

  const EvictionGroup* eviction_group_;
  const GroupTensors* tensors_;
  std::size_t first_lane_, n_lanes_, length_;
  UnitDriver<IndexStore> driver_;
  SlotGather gather_;
};

/// Returns the future that an oracle gets of lanes [first_lane, first_lane + n_lanes). It must outlive the
/// units.
using FutureOfLanes = std::function<const policy::Future&(std::size_t first_lane, std::size_t n_lanes)>;

/// Makes the units of an eviction group in a lane group, in order of their lanes. `length` 0: the sequence's.
std::vector<ReplayUnit> replay_units(const EvictionGroup& eviction_group, const GroupTensors& tensors,
                                     std::uint64_t seed, const policy::Tables* tables,
                                     const FutureOfLanes& future, std::size_t length = 0);

}  // namespace kvsim::sim
