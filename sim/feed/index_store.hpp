#pragma once
/// Records which positions are resident in one cache, and since which step. Keys and values stay in the
/// tensors that all caches share.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/feed/slot_store.hpp"

namespace kvsim::sim {

/// A position is resident at steps [first, last). Step 0 is right after the prompt; step s attends with the
/// s-th token after it.
struct ResidentInterval {
  std::int32_t position = 0;
  std::uint32_t first = 0, last = 0;
};

class IndexStore {
 public:
  /// Begins with kept[i] in slot i. Every position is below `length`, and at most `most` positions are ever
  /// resident at once. With `log`, intervals that have ended are recorded for history().
  IndexStore(std::span<const policy::Position> kept, std::size_t most, std::size_t length, bool log);

  std::span<const policy::Position> slots() const { return slots_; }
  bool contains(policy::Position position) const {
    return resident_[static_cast<std::size_t>(position)] != 0;
  }
  /// Joins as SlotStore says. The intervals of the victims end at `step`.
  std::size_t join(std::span<const std::size_t> victims, const Token& token, std::uint32_t step);

  /// End of an interval whose position is still resident.
  static constexpr std::uint32_t kOpen = 0xffffffffU;
  /// The intervals that overlap the present block of steps.
  std::span<const ResidentInterval> intervals() const { return intervals_; }
  /// Begins a block of steps: drops the intervals that have ended, after recording them if `log` was set.
  void begin_block();
  /// Drops ended intervals without recording them: those of tokens that were evicted while the prompt
  /// streamed.
  void forget_ended();

  /// Returns every interval, ordered by position and then first step; open ones end at `end`. Needs `log`.
  std::vector<ResidentInterval> history(std::uint32_t end) const;

 private:
  std::vector<policy::Position> slots_;
  std::vector<std::uint8_t> resident_;  ///< per position, 0 or 1
  std::vector<std::size_t> interval_of_slot_;
  std::vector<ResidentInterval> intervals_, ended_;
  bool log_;
};
static_assert(SlotStore<IndexStore>);

}  // namespace kvsim::sim
