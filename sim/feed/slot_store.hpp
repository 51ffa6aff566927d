#pragma once
/// A SlotStore records which token is in each slot of a cache.
///
/// Policies decide by slot; only the store knows where the keys and values of a slot lie. An IndexStore
/// (sim/feed/index_store.hpp) stores positions, and the keys and values stay in tensors that all caches
/// share: the recorded ones in a replay, those of the prompt in a running model. A store that owns its keys
/// and values copies them when a token joins. Policies and UnitDriver work the same way with both.
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>

#include "policies/api/eviction.hpp"

namespace kvsim::sim {

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

}  // namespace kvsim::sim
