#pragma once
/// The positions that one cache holds, and since when. Keys and values stay in the tensors that all caches
/// share.
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
  /// Slot i starts with kept[i], of positions below `length`. `most` bounds what the store ever holds. With
  /// `log`, intervals that have ended are kept for history().
  IndexStore(std::span<const policy::Position> kept, std::size_t most, std::size_t length, bool log);

  std::span<const policy::Position> slots() const { return slots_; }
  bool contains(policy::Position position) const {
    return resident_[static_cast<std::size_t>(position)] != 0;
  }
  /// As SlotStore says. Victims are resident until before `step`.
  std::size_t join(std::span<const std::size_t> victims, const Token& token, std::uint32_t step);

  /// End of an interval whose position is still resident.
  static constexpr std::uint32_t kOpen = 0xffffffffU;
  /// Intervals that reach into the present block of steps.
  std::span<const ResidentInterval> intervals() const { return intervals_; }
  /// Forgets, or logs, intervals that have ended.
  void begin_block();
  /// Forgets ended intervals without logging them: those of tokens that the prompt brought and took.
  void forget_ended();

  /// Every interval, by position and then first step; open ones end at `end`. Needs `log`.
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
