#pragma once
/// What one unit holds under one cell, and since when.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

class ResidentSet {
 public:
  /// Slot i starts with kept[i], of positions below `length`; `most` bounds what it will ever hold. With
  /// `log`, ended stays are kept for history().
  ResidentSet(std::span<const policy::Position> kept, std::size_t most, std::size_t length, bool log);

  std::span<const policy::Position> slots() const { return slots_; }
  bool holds(policy::Position position) const { return held_[static_cast<std::size_t>(position)] != 0; }
  /// The token of decode step `step` takes the slot of the first victim, or a new one; victims are held until
  /// before `step`, and the slots of all but the first close up. Returns its slot.
  std::size_t join(std::span<const std::size_t> victims, policy::Position position, std::uint32_t step);

  /// Stays that reach into the present block of steps; `last` of those still held is kForever.
  static constexpr std::uint32_t kForever = 0xffffffffU;
  std::span<const ResidentInterval> stays() const { return stays_; }
  /// Forgets (or logs) stays that have ended.
  void begin_block();
  /// Forgets them without a trace: what came and went while the prompt passed through.
  void begin_history();

  /// Every stay, by position then first step; the open ones end at `end`. Needs `log`.
  std::vector<ResidentInterval> history(std::uint32_t end) const;

 private:
  void drop_ended();

  std::vector<policy::Position> slots_;
  std::vector<std::uint8_t> held_;  ///< per position
  std::vector<std::size_t> stay_of_slot_;
  std::vector<ResidentInterval> stays_, ended_;
  bool log_;
};

}  // namespace kvsim::sim
