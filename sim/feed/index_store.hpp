#pragma once
/// Records which positions are resident in one cache, and since which step. Keys and values stay in the
/// tensors that all caches share.
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::sim {

// A SlotStore records which token is in each slot of a cache.
//
// Policies decide by slot; only the store knows where the keys and values of a slot lie. An IndexStore
// stores positions, and the keys and values stay in tensors that all caches
// share: the recorded ones in a replay, those of the prompt in a running model. A store that owns its keys
// and values copies them when a token joins. Policies and UnitDriver work the same way with both.

/// A token as it reaches the caches of a unit. Keys and queries are those that attention uses (after RoPE).
struct Token {
  policy::Position position = 0;
  MatrixView keys;               ///< [n_lanes, head_dim]
  MatrixView values;             ///< [n_lanes, value_dim]
  MatrixView queries;            ///< [n_query_heads, head_dim]; empty without Needs::queries
  std::uint8_t token_class = 0;  ///< TokenClass bits; 0 without Needs::classes
  /// policy::Step::surprise; NaN without Needs::surprises.
  float surprise = std::numeric_limits<float>::quiet_NaN();
};

/// Slot i of a new store holds the i-th position that the policy keeps of the prompt. `join` evicts the slots
/// `victims` (distinct, in the decoder's order) and gives the token the slot of the first, or a new one
/// behind the last if there is none; it closes up the slots of the others and returns the token's slot.
/// `step` is the number of the generated token, from 1; 0 within the prompt.
template <class S>
concept SlotStore = requires(S store, const S view, std::span<const std::size_t> victims, const Token& token,
                             std::uint32_t step) {
  { view.slots() } -> std::same_as<std::span<const policy::Position>>;  // the position in each slot
  { view.contains(token.position) } -> std::same_as<bool>;
  { store.join(victims, token, step) } -> std::same_as<std::size_t>;
};

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
